"""Context usage, cost, and messages that are sent while the model works."""

import fcntl
import os
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from refold.commands.table import commands
from refold.console import keyboard_modes as keyboards
from refold.console.bell import Bell, notice_sequence
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key, QueuedMessage
from refold.errors import ProviderError
from refold.journal.events.kinds import Compacted, Entry, Said, Started, TurnStarted
from refold.journal.events.setting_events import BudgetSet
from refold.provider.port import Delta, Request
from refold.session.session import Session
from refold.terminal.run import PromptLoop
from refold.testing.providers import Reply, ScriptedProvider
from refold.values.usage import Budget, Usage
from tests.terminal.stage import READ, TODOS
from tests.terminal.test_conversation import ScriptedTerminal, Typed, Typist

T = TypeVar("T")
OpenScriptedTerminal = Callable[..., ScriptedTerminal]
Step = Callable[[Session, Callable[[str], None]], Awaitable[None]]


@pytest.fixture
def scripted_terminal(tmp_path: Path) -> OpenScriptedTerminal:
    return lambda *lines, **more: ScriptedTerminal(tmp_path, *lines, **more)


def test_context_command_shows_the_context_window_by_part(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal([READ], "Well.").tell("/context", "look", "/context")

    assert "Nothing has been sent to a model yet." in rows
    parts = [row.split()[0] for row in rows if row.endswith("%")]
    assert parts[1:] == ["tools", "messages", "responses", "tool", "tool", "free"]


def test_compact_command_replaces_old_messages_by_a_summary(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    counted = Reply("Second.", usage=Usage(fresh=4_000, output=2))
    terminal = scripted_terminal([READ], "First. " * 99, counted, "<sum>", "Third.")

    rows = terminal.tell("one", "two", "/compact the greeting", "three")

    assert [e.focus for e in events_of_kind(terminal, Compacted)] == ["the greeting"]
    (result,) = events_of_kind(terminal, Compacted)
    assert (result.kind, result.dropped) == ("full", 4)
    text = "compacted: 4 messages became a summary, "
    (row,) = [row for row in rows if row.startswith(text)]
    before, _, after = row.removeprefix(text).removesuffix(" of window").partition(" -> ")
    assert int(after.rstrip("%")) < int(before.rstrip("%")) < 100
    assert "Third." in rows


def test_compact_command_prints_how_to_undo_the_compaction(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    counted = Reply("Second.", usage=Usage(fresh=4_000, output=2))
    terminal = scripted_terminal([READ], "First. " * 99, counted, "<sum>", "Third.")
    rows = terminal.tell("one", "two", "/compact")
    (undo,) = [row for row in rows if "To undo this: " in row]

    terminal.tell(undo.partition(": ")[2], "y", "three")

    assert any("First. First." in text for text in last_request(terminal))


def test_a_failed_summary_is_reported_and_old_messages_are_left_out(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal(
        [READ], "First. " * 99, "Second.", ProviderError("no line"), "Third."
    )

    rows = terminal.tell("one", "two", "/compact", "three")

    assert "A background model call failed: no line" in rows
    assert any("4 old messages left out, without a summary" in row for row in rows)


def test_compact_reports_that_there_is_nothing_to_compact(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal("Hm.").tell(
        "/compact", "/compact prune it", "hi", "/compact prune"
    )

    assert "There are no messages yet, so there is nothing to compact." in rows
    assert "/compact prune takes no focus: it only removes old tool results" in rows
    assert "The conversation cannot be compacted further." in rows
    assert not any("made shorter: 0" in row for row in rows)


def test_todos_command_lists_the_todos(scripted_terminal: OpenScriptedTerminal) -> None:
    rows = scripted_terminal([TODOS], "All noted.").tell("/todos", "plan it", "/todos")

    items = ["[x] look", "[>] change", "[ ] test"]
    assert "There are no todos." in rows
    assert [row for row in rows if row in items] == items
    assert "  └ [x] look" in rows


def test_cost_command_lists_turns_and_never_guesses_prices(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    spent = Reply("Hello.", usage=Usage(1000, 0, 0, 100))

    rows = scripted_terminal(spent).tell("/cost", "greet\nme", "/cost turns", "/cost x")

    assert "Nothing has been used yet." in rows
    first_row = rows.index("  1  greet me")
    assert rows[first_row + 1] == "     1,000 in · 100 out · $0.0045"
    assert rows[first_row + 2] == "script/one  1,000 in · 100 out · $0.0045"
    assert rows[first_row + 3] == "11% of window"
    assert "type /cost, or /cost turns, not 'x'" in rows


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("2.50", Budget(2.5, 500)),
        ("$10", Budget(10.0, 500)),
        ("usd 3", Budget(3.0, 500)),
        ("tokens 300k", Budget(None, 300_000)),
        ("tokens 1.5m", Budget(None, 1_500_000)),
        ("tokens 40_000", Budget(None, 40_000)),
        ("calls 20", Budget(None, 500, 20)),
        ("seconds 90", Budget(None, 500, None, 90.0)),
        ("off", Budget()),
    ],
)
def test_a_budget_is_changed_for_this_session(
    scripted_terminal: OpenScriptedTerminal, typed: str, chosen: Budget
) -> None:
    terminal = scripted_terminal()
    terminal.budget = Budget(None, 500)

    terminal.tell(f"/budget {typed}")

    assert events_of_kind(terminal, BudgetSet) == [BudgetSet(chosen)]


@pytest.mark.parametrize(
    "typed", ["0", "-1", "much", "tokens", "tokens x", "days 3", "1.2.3"]
)
def test_an_invalid_budget_is_rejected_with_the_typed_text(
    scripted_terminal: OpenScriptedTerminal, typed: str
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell(f"/budget {typed}")

    assert events_of_kind(terminal, BudgetSet) == []
    assert any(
        row.startswith(f"'{typed}' is not a budget: type /budget USD") for row in rows
    )


@pytest.mark.parametrize("typed", ["tokens 1.5", "calls 0.2"])
def test_a_budget_with_a_fractional_count_is_rejected(
    scripted_terminal: OpenScriptedTerminal, typed: str
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell(f"/budget {typed}")

    assert events_of_kind(terminal, BudgetSet) == []
    kind = typed.split()[0]
    assert f"'{typed}' is not a budget: {kind} must be a whole number" in rows


def test_a_turn_pauses_at_its_budget_and_enter_continues_it(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    costly = Reply("", (READ,), usage=Usage(2_000, 0, 0, 500))
    terminal = scripted_terminal(costly, costly, "All done.")
    terminal.budget = Budget(0.01)

    rows = terminal.tell("go", "", "/budget 1", "")

    paused = [row for row in rows if row.startswith("budget: $0.01 of $0.01 are used. ")]
    assert len(paused) == 2
    assert paused[0].endswith(
        "/budget raises it; Enter continues with the same amount again."
    )
    assert "All done." in rows
    assert [e.why for e in events_of_kind(terminal, TurnStarted)] == [
        "message",
        "continue",
        "continue",
    ]


def test_resuming_at_a_budget_pause_says_how_to_continue(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal(
        Reply("", (READ,), usage=Usage(2_000, 0, 0, 500)), "All done."
    )
    terminal.budget = Budget(0.01)
    terminal.tell("go")

    rows = terminal.tell("")

    assert sum("Enter continues with the same amount again." in row for row in rows) == 2
    assert "All done." in rows


def test_a_resumed_session_uses_the_prompt_sign_of_this_terminal(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal("Done.")
    terminal.paper = Printer(terminal.out, TerminalCapabilities(signs=False))
    terminal.tell("go")

    rows = terminal.tell(Key.CTRL_D)

    assert rows[-4:-2] == ["> go", "Done."]


class Fingers(Typist):
    """A user whose keys arrive one by one while it works."""

    has_line_editor = True

    async def read_input(self) -> str:
        return await keyboards.read_key(0)


@contextmanager
def keyboard() -> Generator[Callable[[str], None]]:
    """Send key presses through the descriptor that the terminal reads keys from."""
    before, (out, into) = os.dup(0), os.pipe()
    os.dup2(out, 0)

    def press(keys: str) -> None:
        os.write(into, keys.encode())

    try:
        yield press
    finally:
        os.dup2(before, 0)
        for number in (before, out, into):
            os.close(number)


def run_while_working(
    terminal: ScriptedTerminal, steps: Sequence[Step], *typed: Typed, first: str = "go"
) -> list[str]:
    """Let a command begin, and do these steps, each when the one before has come to rest."""

    async def run_story() -> None:
        async with await terminal.session() as session:
            has_begun = anyio.Event()

            def note_start(entry: Entry) -> None:
                if isinstance(entry.event, Started):
                    has_begun.set()

            session.hub.subscribe(note_start)
            here = PromptLoop(
                terminal.handle(session),
                terminal.paper,
                Fingers("y", *typed),
            )
            with keyboard() as press:
                async with anyio.create_task_group() as group:
                    group.start_soon(here.run, first)
                    await has_begun.wait()
                    for step in steps:
                        await step(session, press)

    anyio.run(run_story)
    return [row for row in terminal.out.getvalue().split("\n") if row]


def press_step(keys: str) -> Step:
    async def step(session: Session, press: Callable[[str], None]) -> None:
        press(keys)
        await session.record.wait_for_event(session.view.seq)

    return step


def press_ignored(keys: str) -> Step:
    """Keys that come to nothing: they are read before the next ones are pressed."""

    async def step(session: Session, press: Callable[[str], None]) -> None:
        press(keys)
        with anyio.fail_after(60):
            while any(fcntl.ioctl(0, termios.FIONREAD, bytes(4))):
                await anyio.sleep(0.005)

    return step


def press_until_shown(terminal: ScriptedTerminal, keys: str, text: str) -> Step:
    async def step(session: Session, press: Callable[[str], None]) -> None:
        press(keys)
        with anyio.fail_after(60):
            while text not in terminal.out.getvalue():
                await anyio.sleep(0.005)

    return step


async def stop(session: Session, press: Callable[[str], None]) -> None:
    await session.inbox.interrupt()


async def finish(session: Session, press: Callable[[str], None]) -> None:
    Path(session.view.session.directory, "enough").touch()


UNTIL = ("bash", '{"command": "while ! test -e enough; do sleep 0.01; done; echo so far"}')


def test_messages_are_sent_at_the_next_step_and_queued_ones_after_the_turn(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "Done.", "And that.")

    rows = run_while_working(
        terminal,
        [press_step("n"), press_step("a"), finish],
        "now this",
        QueuedMessage("and later that"),
    )

    pairs = [(e.text, e.when) for e in events_of_kind(terminal, Said)]
    assert pairs == [("go", "now"), ("now this", "now"), ("and later that", "next")]
    after = rows.index("after this turn: and later that")
    assert rows.index("› now this") < after < rows.index("Done.")
    assert rows.index("Done.") < rows.index("› and later that") < rows.index("And that.")


def test_alt_enter_received_in_one_read_with_the_text_queues_the_message(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "Done.", "And that.")

    run_while_working(terminal, [press_step("later\x1b\r"), finish])

    assert [(e.text, e.when) for e in events_of_kind(terminal, Said)][1:] == [
        ("later", "next")
    ]


@pytest.mark.parametrize("up", ["\x1b[A", "\x1bOA"])
def test_up_key_withdraws_the_newest_queued_message_for_editing(
    scripted_terminal: OpenScriptedTerminal, up: str
) -> None:
    terminal = scripted_terminal([UNTIL], "Done.", "And that.")
    queued = [press_step("paint it\x1b\r"), press_step("sell it\x1b\r")]

    rows = run_while_working(
        terminal, [*queued, press_step(up), press_until_shown(terminal, "", "give it"), finish], QueuedMessage("give it away"),
    )  # fmt: skip

    texts = [e.text for e in events_of_kind(terminal, Said)]
    assert texts == ["go", "paint it", "sell it", "give it away"]
    assert "withdrawn: sell it" in rows
    assert "paint itgive it away" in last_request(terminal)
    assert "sell it" not in last_request(terminal)


def test_up_key_does_nothing_when_no_message_is_queued(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "Done.")

    rows = run_while_working(
        terminal, [press_ignored("\x1b[A"), press_step("hurry\r"), finish]
    )

    assert not any("withdrawn" in row for row in rows)
    assert [e.text for e in events_of_kind(terminal, Said)] == ["go", "hurry"]


def test_queued_messages_survive_a_stop_and_enter_sends_them(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "I heard.")

    rows = run_while_working(terminal, [press_step("later\x1b\r"), stop], "", Key.CTRL_D)

    assert "Not sent yet: later. Your next message or Enter sends it." in rows
    assert [e.why for e in events_of_kind(terminal, TurnStarted)] == ["message", "continue"]
    assert "later" in last_request(terminal)
    assert "I heard." in rows


def test_a_resumed_session_shows_unsent_messages(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "I heard.")
    run_while_working(terminal, [press_step("later\x1b\r"), stop], Key.CTRL_D)

    rows = terminal.tell("")

    assert rows.count("Not sent yet: later. Your next message or Enter sends it.") == 2
    assert "Continuing the interrupted turn." not in rows
    assert "I heard." in rows


def test_queued_messages_survive_a_stop_and_are_sent_with_the_next_message(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "I heard.")

    run_while_working(terminal, [press_step("later\x1b\r"), stop], "and this", Key.CTRL_D)

    assert [e.why for e in events_of_kind(terminal, TurnStarted)] == ["message", "message"]
    assert "laterand this" in last_request(terminal)


def test_read_only_commands_run_during_a_turn_and_others_after_it(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "Done.")
    steps = [
        press_until_shown(
            terminal, "/budget 7\r", "One turn may use up, chosen for this session:"
        ),
        press_until_shown(terminal, "/cost\r", "script/one  10 in"),
        press_until_shown(terminal, "/mode\r", "* default"),
        press_until_shown(terminal, "/vi\r", "after this turn: /vi"),
        finish,
    ]

    rows = run_while_working(terminal, steps, Key.CTRL_D)

    done = rows.index("Done.")
    assert rows.index("› /budget 7") + 1 == rows.index(
        "One turn may use up, chosen for this session:"
    )
    assert "› /vi" not in rows
    assert events_of_kind(terminal, BudgetSet) == [BudgetSet(Budget(7.0))]
    assert rows.index("after this turn: /vi") < done
    assert done < rows.index("this display has no line editor, so it has no vi keys")
    at_once = {name for command in commands() if command.at_once for name in command.names}
    assert "context" in at_once
    assert "clear" not in at_once


def test_compact_during_a_turn_takes_effect_before_the_next_step(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([UNTIL], "<sum>", "Done.")

    rows = run_while_working(terminal, [press_step("/compact prune\r"), finish], Key.CTRL_D)

    assert "The conversation will be compacted before the next step." in rows
    assert [e.kind for e in events_of_kind(terminal, Compacted)] == ["prune"]


def last_request(terminal: ScriptedTerminal) -> list[str]:
    """Return the last request to the model, message by message."""
    assert isinstance(terminal.provider, ScriptedProvider)
    return [spoken.message.text for spoken in terminal.provider.heard[-1].messages]


BODY = "it is done: fix\x1b]0;x\x07 it"
SAFE = "refold: it is done: fix\\x1b]0;x\\x07 it"


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"TERM": "xterm-256color"}, "\x07"),
        ({"TERM": "xterm-kitty"}, f"\x1b]99;;{SAFE}\x1b\\\x07"),
        ({"TERM_PROGRAM": "iTerm.app"}, f"\x1b]9;{SAFE}\x1b\\\x07"),
        ({"TERM_PROGRAM": "WezTerm"}, f"\x1b]9;{SAFE}\x1b\\\x07"),
        ({"TERM_PROGRAM": "ghostty"}, f"\x1b]9;{SAFE}\x1b\\\x07"),
        ({"VTE_VERSION": "7200"},
         f"\x1b]777;notify;refold;{SAFE.removeprefix('refold: ')}\x1b\\\x07"),
        ({"TERM": "foot"},
         f"\x1b]777;notify;refold;{SAFE.removeprefix('refold: ')}\x1b\\\x07"),
        ({"TERM_PROGRAM": "ghostty", "TMUX": "/tmp/x"}, "\x07"),
        ({"TERM": "xterm-kitty", "STY": "1.x"}, "\x07"),
    ],
)  # fmt: skip
def test_the_notification_sequence_is_sent_only_to_terminals_that_support_it(
    environ: dict[str, str], sent: str
) -> None:
    assert notice_sequence(environ, BODY) == sent


def test_the_bell_does_not_ring_within_30_seconds_of_a_key_press() -> None:
    now = 0.0
    bell = Bell(lambda: now, 30.0)
    never = Bell(lambda: now, 0.0)

    before = bell.is_due
    bell.note_key()
    never.note_key()
    now = 29.9
    soon = bell.is_due
    now = 30.0
    late = bell.is_due
    bell.note_key()

    assert (before, soon, late, bell.is_due, never.is_due) == (
        False,
        False,
        True,
        False,
        False,
    )


@pytest.mark.parametrize(("moves", "rung"), [(True, 2), (False, 0)])
def test_the_bell_rings_at_questions_and_at_the_end_of_long_turns(
    scripted_terminal: OpenScriptedTerminal,
    monkeypatch: pytest.MonkeyPatch,
    moves: bool,
    rung: int,
) -> None:
    for name in ("TERM_PROGRAM", "VTE_VERSION", "KITTY_WINDOW_ID", "TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = scripted_terminal([READ], [("bash", '{"command": "echo x"}')], "Done.")
    terminal.paper = Printer(
        terminal.out,
        TerminalCapabilities(moves=moves, display="status" if moves else "plain"),
    )

    rows = terminal.tell("go", "y", notify=1e-9)

    assert "\n".join(rows).count("\x07") == rung


def events_of_kind(terminal: ScriptedTerminal, kind: type[T]) -> list[T]:
    return [event for event in terminal.events(kind) if isinstance(event, kind)]


def test_esc_stops_compaction_and_leaves_the_conversation_unchanged(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    class Slow(ScriptedProvider):
        """Never ends its summary."""

        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            if len(self.heard) == 3:
                self.heard.append(request)
                event.set()
                await anyio.sleep_forever()
            async for delta in super().stream(request):
                yield delta

    event = anyio.Event()
    terminal = scripted_terminal()
    terminal.provider = Slow([READ], "First. " * 99, "Second.")

    async def run_story() -> None:
        async with await terminal.session() as session:
            here = PromptLoop(
                terminal.handle(session),
                terminal.paper,
                Fingers("one", "two", "/compact", Key.CTRL_D),
            )
            with keyboard() as press:
                async with anyio.create_task_group() as group:
                    group.start_soon(here.run, "")
                    await event.wait()
                    press("\x1b")

    anyio.run(run_story)

    text = "Stopped. The conversation is unchanged."
    assert text in terminal.out.getvalue()
    assert events_of_kind(terminal, Compacted) == []
