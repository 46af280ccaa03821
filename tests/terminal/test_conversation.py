"""What is printed and what is sent, without a terminal: the user types from a list."""

import io
import os
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.client.session import Session as ClientSession
from refold.config.paths import paths
from refold.console.capabilities import TerminalCapabilities
from refold.console.editor import edit_text
from refold.console.printer import Printer
from refold.console.reader import Key, QueuedMessage
from refold.errors import Unreachable
from refold.journal.events import codec
from refold.journal.events.kinds import (
    Answered,
    Entry,
    Granted,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionResumed,
    Started,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import EffortChosen, ModeChanged, ModelChosen
from refold.journal.store.port import MemoryStore
from refold.provider.port import Delta, Provider, Request
from refold.session.hub import Frame
from refold.session.session import Session
from refold.terminal.greeting import greet
from refold.terminal.run import IDLE_SECONDS, PromptLoop
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.terminal.work import Work
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.values.messages import Message, ToolCall
from refold.values.modes import Mode
from refold.values.usage import NO_LIMIT
from refold.views.question_keys import AMEND_MARK, DraftMessage, Menu, menu_line
from refold.views.styled import Line as Shown
from refold.views.styled import plain_text
from tests.terminal.stage import (
    EDIT,
    READ,
    RUN,
    WAIT,
    Unhurried,
    facts_of,
    handle_on,
    open_session,
)

HELLO = 'def greet():\n    return "hi"\n\nprint(greet())\n'
NEVER = "looks at the question until Ctrl+C is pressed"
Typed = str | QueuedMessage | Key | Callable[[], Awaitable[str | Key]]


class Typist:
    """Answers each question with the next of its texts. Implements `TerminalReader`."""

    has_line_editor, reads_input, can_edit_text = False, True, False

    def __init__(self, *typed: Typed) -> None:
        self.asked: list[str] = []
        self.switched: list[tuple[str, str]] = []  # drafts: from which session to which
        self.restored = list[str]()
        self._typed = list(typed)
        self._interrupted, self._waiting = anyio.Event(), False

    async def read_message(self, prompt: Callable[[], Shown], text: str = "") -> str | Key:
        return message_now(await self._next(prompt()))

    async def read_line(self, prompt: Shown, text: str = "") -> str | Key:
        return message_now(await self._next(prompt))

    async def read_draft(
        self, prompt: Callable[[], Shown], text: str = ""
    ) -> str | QueuedMessage | Key:
        return await self._next(prompt())

    async def choose(self, menu: Menu, prompt: Shown = ()) -> str | DraftMessage | Key:
        line = prompt or menu_line(menu, 100, typed=False, calm=True)
        while not menu.free_text:
            result = message_now(await self._next(line))
            if isinstance(result, Key):
                return result
            choice = result.removeprefix(AMEND_MARK)
            if choice and choice in menu.ids:
                return result
        return message_now(await self._next(line))

    async def read_choice(self, prompt: Shown, keys: str) -> str | Key:
        result = message_now(await self._next(prompt))
        return result if isinstance(result, Key) or result in keys else ""

    async def read_secret(
        self, prompt: Shown, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key:
        return message_now(await self._next(prompt))

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        return await edit_text(text, command, name)

    def erase_question(self) -> bool:
        return False

    def suppress_echo(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def read_input(self) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    def interrupt(self) -> bool:
        self._interrupted.set()
        return self._waiting

    def close_prompt(self) -> bool:
        return False

    def switch_draft(self, old_session: str, new_session: str) -> None:
        self.switched.append((old_session, new_session))

    def restore_draft(self, text: str) -> None:
        self.restored.append(text)

    def redraw(self) -> None:
        pass

    def use_vi_keys(self, enabled: bool | None = None) -> bool | None:
        return None

    async def _next(self, prompt: Shown) -> str | QueuedMessage | Key:
        self.asked.append(plain_text([prompt]))
        typed = self._typed.pop(0) if self._typed else Key.CTRL_D
        if typed is NEVER:
            self._waiting = True
            await self._interrupted.wait()
            return Key.CTRL_C
        return await typed() if callable(typed) else typed


def message_now(typed: str | QueuedMessage | Key) -> str | Key:
    """Return a message for the running turn."""
    assert not isinstance(typed, QueuedMessage)
    return typed


class ScriptedTerminal:
    """One session at one terminal, with everything that was printed and stored."""

    def __init__(self, directory: Path, *lines: Line, steps: int = 9) -> None:
        (directory / "hello.py").write_text(HELLO, encoding="utf-8")
        self.here, self.store, self.steps = directory, MemoryStore(), steps
        self.provider: Provider = ScriptedProvider(*lines)
        self.out = io.StringIO()
        self.paper = Printer(self.out, TerminalCapabilities())
        self.question_timeout: float | None = None
        self.budget = NO_LIMIT

    async def session(self) -> Session:
        return await open_session(
            self.provider,
            self.here,
            self.store,
            self.steps,
            self.question_timeout,
            self.budget,
        )

    async def converse(
        self,
        typist: Typist,
        first_words: str = "",
        session: Session | None = None,
        **options: Any,
    ) -> int:
        session = session or await self.session()
        if options.pop("sandboxed", False):
            options["facts"] = replace(facts_of(self.here), sandboxed=True)
        idle = options.pop("idle", IDLE_SECONDS)
        handle = self.handle(session, **options)
        async with session:
            here = PromptLoop(handle, self.paper, typist, idle=idle)
            return await here.run(first_words)

    def handle(self, session: Session, **options: Any) -> ClientSession:
        return handle_on(session, self.provider, self.here, self.budget, **options)

    @property
    def read_defaults(self) -> list[tuple[str, object]]:
        """Return what was made the default, by its key."""
        file = paths(os.environ).settings
        data = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return list(data.items())

    def tell(
        self,
        *typed: Typed,
        first_words: str = "",
        typist: Typist | None = None,
        **options: Any,
    ) -> list[str]:
        """Return the lines that were printed while this was typed."""
        story = partial(self.converse, typist or Typist(*typed), first_words, **options)
        assert anyio.run(story) == 0
        return [row for row in self.out.getvalue().split("\n") if row]

    def events(self, *kinds: type) -> list[object]:
        events = [entry.event for entry, _ in codec.decode(self.store.lines)]
        return [event for event in events if isinstance(event, kinds)]


@pytest.fixture
def scripted_terminal(tmp_path: Path) -> Callable[..., ScriptedTerminal]:
    return lambda *lines, **more: ScriptedTerminal(tmp_path, *lines, **more)


def test_a_turn_prints_its_message_calls_questions_and_response_in_order(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(
        Reply("I will **look**.", (READ,), "Hm,\nlet me see."), [EDIT], [RUN], "Done."
    )

    rows = terminal.tell("be friendly", "s", "y", "/quit")

    assert rows[2:-2] == [
        "∴ Hm, let me see.",
        "I will **look**.",
        "● read_file hello.py",
        "  └ read hello.py, 4 lines",
        "? Edit hello.py?",
        "  +1 -1 lines",
        "  1  def greet():",
        '  2 -    return "hi"',
        '  2 +    return "hello"',
        "  3  ",
        "  4  print(greet())",
        "  └ yes, and edit_file(./hello.py) for this session",
        "  └ changed hello.py +1 -1",
        "? May bash run this?",
        "  python3 hello.py",
        "  no full sandbox: it sees your keys, and the network is not shut off",
        "  └ yes, once",
        "  └ hello",
        "Done.",
    ]
    assert rows[-2].startswith("40 in · 129 out · <1% of window · $0.0021 · ")
    assert rows[-1] == "To resume: refold -c"
    assert terminal.events(Granted, Answered) == [
        Granted("edit_file(./hello.py)"),
        Answered("call-1", True),
        Answered("call-2", True),
    ]


@pytest.fixture
def own_pytest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name that does nothing: the real one takes a second."""
    (home / "bin").mkdir()
    (home / "bin" / "pytest").write_text("#!/bin/sh\n")
    (home / "bin" / "pytest").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("keys", "rule", "asked"),
    [
        ("s", "bash(pytest *)", 1),
        ("rs", "bash(pytest --version)", 2),
        ("rrs", "bash(pytest *)", 1),
    ],
)
def test_the_broad_rule_is_offered_and_the_r_key_narrows_it(
    scripted_terminal: Callable[..., ScriptedTerminal],
    own_pytest: None,
    keys: str,
    rule: str,
    asked: int,
) -> None:
    first, second = (
        [("bash", f'{{"command": "pytest --{word}"}}')] for word in ("version", "help")
    )
    terminal = scripted_terminal(first, second, "Done.")

    rows = terminal.tell("go", *keys, *"y" * (asked - 1), "/quit")

    assert f"  └ yes, and {rule} for this session" in rows
    assert rows.count("? May bash run this?") == asked
    assert terminal.events(Granted) == [Granted(rule)]


def test_a_command_of_several_parts_offers_a_rule_for_each(
    scripted_terminal: Callable[..., ScriptedTerminal], own_pytest: None
) -> None:
    command = '{"command": "pytest --version; touch one"}'
    terminal = scripted_terminal([("bash", command)], [("bash", command)], "Done.")

    rows = terminal.tell("go", "s", "/quit")

    assert "  └ yes, and bash(pytest *) and bash(touch one) for this session" in rows
    assert rows.count("? May bash run this?") == 1
    assert terminal.events(Granted) == [
        Granted("bash(pytest *)"),
        Granted("bash(touch one)"),
    ]


def test_a_key_at_a_question_switches_to_accepting_edits(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    both = [
        ("write_file", f'{{"path": "{name}", "content": "x"}}') for name in ("one", "two")
    ]
    terminal = scripted_terminal(
        both, [("write_file", '{"path": "three", "content": "x"}')], "Done."
    )

    rows = terminal.tell("go", "e", "/quit")

    assert [row for row in rows if row.startswith("? ")] == ["? Create one?"]
    assert "  └ yes, and edits run without asking from here on" in rows
    assert not [row for row in rows if row.startswith("The mode is now")]  # said already
    assert "  └ yes, as allowed before: write_file two" in rows
    assert terminal.events(ModeChanged) == [ModeChanged("accept-edits")]
    assert all((terminal.here / name).exists() for name in ("one", "two", "three"))


def test_a_rule_can_be_typed_at_a_question_and_must_cover_the_call(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([("bash", '{"command": "make test"}')], "Done.")

    rows = terminal.tell(
        "go", "w", "bash(make x)", "make test", "bash(make te*)", "s", "/quit"
    )

    assert any(row.startswith("'bash(make x)' does not cover this call") for row in rows)
    assert any(row.startswith("'make test' is not a permission rule") for row in rows)
    assert "  └ yes, and bash(make te*) for this session" in rows
    assert terminal.events(Granted) == [Granted("bash(make te*)")]


def test_a_rule_can_be_typed_for_each_part_of_a_command(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(
        [("bash", '{"command": "mkdir -p build && touch build/a"}')], "Done."
    )

    rows = terminal.tell(
        "go",
        "w",
        "bash(mkdir -p build)",
        "bash(mkdir *) and bash(touch build/*)",
        "s",
        "/quit",
    )

    assert any(row.startswith("'bash(mkdir -p build)' does not cover") for row in rows)
    assert terminal.events(Granted) == [
        Granted("bash(mkdir *)"),
        Granted("bash(touch build/*)"),
    ]


def test_a_rule_can_be_typed_at_a_question_that_offers_no_rule(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    command = "; ".join(f"touch {name * 40}" for name in "abcdefgh")
    terminal = scripted_terminal([("bash", f'{{"command": "{command}"}}')], "Done.")

    typist = Typist("go", "w", "bash(touch *)", "s", "/quit")
    terminal.tell(typist=typist)

    assert not any("this session" in row for row in typist.asked[:2])
    assert terminal.events(Granted) == [Granted("bash(touch *)")]


def test_an_approval_can_be_sent_with_a_message_for_the_model(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([("bash", '{"command": "make test"}')], "Done.")

    rows = terminal.tell("go", f"{AMEND_MARK}y", "and fix what fails", "/quit")

    assert "  └ yes, once" in rows
    assert terminal.events(Answered) == [Answered("call-0", True)]
    assert [s.text for s in terminal.events(Said) if isinstance(s, Said)] == [
        "go",
        "and fix what fails",
    ]


def test_esc_cancels_a_message_to_an_approval_and_asks_again(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([("bash", '{"command": "make test"}')], "Done.")

    terminal.tell("go", f"{AMEND_MARK}y", Key.ESC, "n", "not now", "/quit")

    assert terminal.events(Answered) == [Answered("call-0", False, "not now")]


def test_writing_a_rule_never_switches_the_input_to_vi_keys(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    class Switched(Typist):
        can_edit_text = True
        switches = 0

        def use_vi_keys(self, enabled: bool | None = None) -> bool | None:
            self.switches += 1
            return True

    terminal = scripted_terminal([("bash", '{"command": "make test"}')], "Done.")
    typist = Switched("go", "w", "bash(make te*)", "w", Key.ESC, "y", "/quit")

    terminal.tell(typist=typist)

    assert typist.asked.count("rule: ") == 2
    assert typist.switches == 0


@pytest.mark.parametrize(
    "call",
    [
        ("bash", '{"command": "touch x"}'),
        ("write_file", '{"path": "AGENTS.md", "content": "x"}'),
        ("write_file", '{"path": ".env", "content": "x"}'),
        ("write_file", '{"path": "../outside", "content": "x"}'),
    ],
)
def test_accepting_edits_is_not_offered_where_that_mode_would_ask(
    scripted_terminal: Callable[..., ScriptedTerminal], call: tuple[str, str]
) -> None:
    terminal = scripted_terminal([call], "Pity.")

    typist = Typist("go", "e", "n", "", "/quit")
    terminal.tell(typist=typist)

    assert any("1 once (y)" in row for row in typist.asked)
    assert not any("accept edits" in row for row in typist.asked)
    assert terminal.events(ModeChanged) == []


def test_a_rule_granted_at_one_question_allows_other_calls_that_it_covers(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    calls = [
        ("write_file", f'{{"path": "{name}", "content": "x"}}')
        for name in ("src/one", "src/two", "other/three")
    ]
    terminal = scripted_terminal(calls, "Done.")

    rows = terminal.tell("go", "s", "n", "", "/quit")

    assert [row for row in rows if row.startswith("? ")] == [
        "? Create src/one?", "? Create other/three?",
    ]  # fmt: skip
    assert "  └ yes, as allowed before: write_file src/two" in rows
    assert terminal.events(Granted) == [Granted("write_file(src/**)")]
    assert [(terminal.here / name).exists() for name in ("src/two", "other/three")] == [
        True, False,
    ]  # fmt: skip


_SEVERAL = [
    ("write_file", f'{{"path": "{name}", "content": "x"}}')
    for name in ("one", "two", "six")
]


def test_one_key_shows_and_decides_all_calls_of_a_response(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(
        [*_SEVERAL, ("write_file", '{"path": ".env", "content": "x"}')], "Done."
    )

    rows = terminal.tell("go", "o", "y", "n", "", "/quit")

    assert [row for row in rows if row.startswith("? ")] == [
        "? Create one?", "? Create one?", "? Create two?", "? Create six?", "? Create .env?",
    ]  # fmt: skip
    assert [row for row in rows if row.startswith("  └ ")][:1] == ["  └ yes to all 3, once"]
    exists = [(terminal.here / name).exists() for name in ("one", "two", "six", ".env")]
    assert exists == [True, True, True, False]
    assert [event.allowed for event in terminal.events(Answered)] == [
        True,
        True,
        True,
        False,
    ]


def test_all_calls_of_a_response_can_be_refused_at_once_or_decided_one_by_one(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(_SEVERAL, "Pity.")
    typist = Typist("go", "o", Key.ESC, "y", "o", "n", "not these", "/quit")

    rows = terminal.tell(typist=typist)

    assert "  └ no to all 2: not these" in rows
    texts = [words for words in typist.asked if "view and decide all" in words]
    assert [words.split("decide all ")[1][0] for words in texts] == ["3", "3", "2"]
    answers = terminal.events(Answered)
    assert answers[0] == Answered("call-0", True)
    assert answers[1:] == [
        Answered(f"call-{number}", False, "not these") for number in (1, 2)
    ]


def test_esc_after_refusing_all_calls_asks_about_all_of_them_again(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    """It must not ask about the first call alone while the question still shows the last
    one.
    """
    terminal = scripted_terminal(_SEVERAL, "Thanks.")
    typist = Typist("go", "o", "n", Key.ESC, "y", "/quit")

    rows = terminal.tell(typist=typist)

    assert "  └ yes to all 3, once" in rows
    assert [event.allowed for event in terminal.events(Answered)] == [True, True, True]


def test_a_refusal_is_sent_to_the_model_with_its_reason(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "All right.")

    rows = terminal.tell("go", "?", "n", "too early")

    assert rows[-5:-3] == ["  └ no: too early", "All right."]
    assert terminal.events(Answered) == [Answered("call-1", False, "too early")]
    assert (terminal.here / "hello.py").read_text(encoding="utf-8") == HELLO


def test_ctrl_c_at_a_permission_question_stops_the_turn(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "never said")

    rows = terminal.tell("go", Key.CTRL_C)

    assert "stopped at a question" in rows
    assert terminal.events(Stopped) == [Stopped("stopped at a question")]
    assert "never said" not in rows


def test_esc_while_typing_the_reason_of_a_refusal_asks_again(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Done.")

    terminal.tell("go", "n", Key.ESC, "y")

    assert terminal.events(Answered) == [Answered("call-1", True)]


def test_a_question_answered_by_another_client_is_removed(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Done.")

    async def run_story() -> str | None:
        async with await terminal.session() as session:

            async def answer_elsewhere() -> str | Key:
                await session.inbox.answer("call-1", allowed=True)
                await anyio.sleep_forever()
                return "n"

            typist = Typist(answer_elsewhere)
            work = Work(terminal.handle(session), terminal.paper, typist)
            await session.inbox.say("go")
            await work.run_until_over(session.run_turns)
            return session.view.turn.outcome

    assert anyio.run(run_story) == "answered"
    assert "  └ answered elsewhere\n" in terminal.out.getvalue()
    assert 'return "hello"' in (terminal.here / "hello.py").read_text(encoding="utf-8")


@pytest.fixture
def cut_off(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> Callable[..., ScriptedTerminal]:
    """Return a session whose process exited while a command ran, or before the turn had
    begun.
    """

    def cut_off_evening(*, begun: bool = True) -> ScriptedTerminal:
        terminal = scripted_terminal("Done.", "More.")

        async def crash() -> None:
            session = await terminal.session()
            await session.inbox.say("be friendly")
            if begun:
                call = ToolCall("call-0", "bash", Raw(b'{"command": "make"}'))
                await session.record(
                    TurnStarted(session.view.seq), ModelAsked(),
                    ModelAnswered(Message("assistant", (call,))),
                    Judged("call-0", "allow"), Started("call-0"),
                )  # fmt: skip

        anyio.run(crash)
        return terminal

    return cut_off_evening


KEYS = "Enter continues it · a message is sent with it · Ctrl+C ends it"


@pytest.mark.parametrize(
    ("begun", "shown"),
    [
        (True, "  ● bash make  was running; it may or may not have taken effect"),
        (False, "  your message was not answered: be friendly"),
    ],
)
def test_an_interrupted_turn_is_shown_and_calls_no_model_before_enter(
    cut_off: Callable[..., ScriptedTerminal], begun: bool, shown: str
) -> None:
    looked, terminal = cut_off(begun=begun), cut_off(begun=begun)

    rows = looked.tell("/history", "/quit")
    continued = terminal.tell("", "/quit")

    first_row = rows.index("This turn was cut off:")
    assert rows[first_row + 1 : first_row + 3] == [shown, KEYS]
    assert len(looked.events(ModelAsked)) == begun  # none since
    assert "Done." in continued
    assert [e.outcome for e in cast("list[TurnEnded]", terminal.events(TurnEnded))] == [
        "answered"
    ]


def test_a_message_continues_an_interrupted_turn(
    cut_off: Callable[..., ScriptedTerminal],
) -> None:
    terminal = cut_off()

    rows = terminal.tell("be quick", "/quit")

    assert "Done." in rows
    assert len(terminal.events(TurnEnded)) == 1  # the same turn
    assert "be quick" in [e.text for e in cast("list[Said]", terminal.events(Said))]


@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_ends_an_interrupted_turn_without_a_model_call(
    cut_off: Callable[..., ScriptedTerminal], begun: bool
) -> None:
    terminal = cut_off(begun=begun)

    terminal.tell(Key.CTRL_C, "/quit")
    again = terminal.tell("/quit")

    assert len(terminal.events(ModelAsked)) == begun
    assert again.count("This turn was cut off:") == 1  # the first time


def test_a_message_on_the_command_line_continues_an_interrupted_turn_without_asking(
    cut_off: Callable[..., ScriptedTerminal],
) -> None:
    rows = cut_off().tell("/quit", first_words="be quick")

    assert KEYS not in rows
    assert "Done." in rows


def test_a_question_left_open_by_a_crash_is_asked_again_after_resume(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], Reply("Shall I?", (EDIT,)), "Done.")

    async def crash() -> None:
        session = await terminal.session()
        await session.inbox.say("be friendly")
        await session.run_turns()

    anyio.run(crash)
    rows = terminal.tell("y")

    assert rows[rows.index("Shall I?") :][:9] == [
        "Shall I?",
        "Continuing the interrupted turn.",
        "? Edit hello.py?",
        "  +1 -1 lines",
        "  1  def greet():",
        '  2 -    return "hi"',
        '  2 +    return "hello"',
        "  3  ",
        "  4  print(greet())",
    ]
    assert "Done." in rows


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_the_turn_at_once_and_offers_another_instruction(
    scripted_terminal: Callable[..., ScriptedTerminal], times: int
) -> None:
    terminal = scripted_terminal([WAIT])

    rows = press_ctrl_c(terminal, "y", times=times)

    assert rows[-3:] == ["stopped", rows[-2], "Type what to do instead."]
    assert terminal.events(Stopped) == [Stopped("interrupted")]


def test_an_empty_line_continues_a_turn_only_after_a_step_limit(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], "So far.", "All done.", steps=1)

    rows = terminal.tell("go", "", "", "")

    assert "step limit: 1 response was allowed. Press Enter to continue." in rows
    assert rows.count("All done.") == 1


def test_a_failed_turn_prints_one_line_and_the_next_message_is_answered(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(
        Unreachable("no connection to \x1b]0;x\x07"), "Back again."
    )

    rows = terminal.tell("one", "two")

    assert r"failed: no connection to \x1b]0;x\x07" in rows
    assert "Back again." in rows


def test_a_resumed_turn_is_timed_from_the_moment_it_was_resumed(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal()
    showing = TranscriptPrinter(terminal.paper, lambda: 0.0)

    for seq, (when, event) in enumerate((
        (10.0, TurnStarted(0)), (12.0, ModelAsked()), (100.0, SessionResumed("x", "/")),
        (107.5, TurnEnded("answered")),
    ), 4):  # fmt: skip
        showing.show(Frame(seq, 0, Entry(seq, event, at=when)))

    assert "7.5 s" in terminal.out.getvalue()


def test_help_on_a_narrow_screen_has_one_column(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal()
    terminal.paper = Printer(terminal.out, TerminalCapabilities(text_width=lambda: 40))

    rows = terminal.tell("/help all")

    first_row = rows.index("  /undo")
    assert rows[first_row + 1] == "      undo everything since your last message"


def test_slash_commands_run_and_unknown_ones_are_reported(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.", "Two.")

    rows = terminal.tell(
        "hello", "/model two", "/model", "", "/model three", "/mode accept-edits", "/mode all",
        "/modelx", "/cost", "/etc/hosts is what?", "exit",
    )  # fmt: skip

    assert [row for row in rows if " out" not in row][3:] == [
        "From the next turn: script/two",
        f"{'1  script/two  now':60}? · price unknown   ",
        f"{'2  script/one':60}? · price unknown   ",
        "there is no model 'three': one or two",
        "accept-edits: edits inside the workspace run without asking, too",
        "'all' is not a mode. There are default, accept-edits, sandbox, plan, rules-only, bypass.",
        "There is no command /modelx. Did you mean /model?",
        "<1% of window",
        "Two.",
        "To resume: refold -c",
    ]
    assert terminal.events(ModelChosen, ModeChanged) == [
        ModelChosen("script/two"),
        ModeChanged("accept-edits"),
    ]


def test_a_model_and_an_effort_can_be_made_the_default(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.")

    rows = terminal.tell(
        "/model two save",
        "/effort",
        "/effort high",
        "/effort huge",
        "/effort max save",
        "exit",
    )

    assert rows[2:] == [
        "From the next turn: script/two",
        "It is the default of new sessions.",
        "the default of the provider (off, low, medium, high, max)",
        "From the next turn: high",
        "'huge' is not an effort: off, low, medium, high, max",
        "From the next turn: max",
        "It is the default of new sessions.",
    ]
    assert terminal.read_defaults == [("model", "script/two"), ("effort", "max")]
    assert terminal.events(EffortChosen) == [EffortChosen("high"), EffortChosen("max")]


def test_clear_command_begins_a_new_session_and_keeps_the_old_one(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.", "Two.")

    rows = terminal.tell("hello", "/clear", "/cost", "again")

    assert "A new session. The previous one is kept." in rows
    assert "Nothing has been used yet." in rows
    assert len(terminal.events(Said)) == 1


def test_a_command_that_switches_sessions_switches_the_draft(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    typist = Typist("hello", "/clear", "again")

    scripted_terminal("One.", "Two.").tell(typist=typist)

    assert len(typist.switched) == 1


def test_ctrl_c_at_the_prompt_asks_to_be_pressed_again(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell(Key.CTRL_C, "", Key.CTRL_C, Key.CTRL_C, "never read")

    assert rows[2:] == ["Press Ctrl+C again to leave, or Ctrl+D."] * 2


def test_a_message_on_the_command_line_is_sent_without_a_prompt(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.")

    rows = terminal.tell(first_words="hello")

    assert rows[2:4] == ["› hello", "One."]


def test_results_of_parallel_calls_are_printed_below_their_calls(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    slow = ("bash", '{"command": "sleep 0.1; echo slow"}')
    quick = ("bash", '{"command": "echo quick"}')
    terminal = scripted_terminal([slow, quick], "Done.")

    rows = terminal.tell("/mode bypass", "go")

    assert rows[3:-2] == [
        "● bash echo quick",
        "  └ quick",
        "● bash sleep 0.1; echo slow",
        "  └ slow",
        "Done.",
    ]


def press_ctrl_c(
    terminal: ScriptedTerminal,
    *typed: Typed,
    times: int = 1,
) -> list[str]:
    """Run until a command has begun, press Ctrl+C, and see it through."""

    async def run_story() -> None:
        async with await terminal.session() as session:
            has_begun = anyio.Event()

            def note_start(entry: Entry) -> None:
                if isinstance(entry.event, Started):
                    has_begun.set()

            session.hub.subscribe(note_start)
            person = Typist(*typed)
            work = Work(terminal.handle(session), terminal.paper, person)
            await session.inbox.say("go")
            async with anyio.create_task_group() as group:
                group.start_soon(work.run_until_over, session.run_turns)
                await has_begun.wait()
                for _ in range(times):
                    await work.interrupt()
                    await anyio.wait_all_tasks_blocked()

    anyio.run(run_story)
    return [row for row in terminal.out.getvalue().split("\n") if row]


def test_ctrl_c_cuts_a_streamed_response_and_keeps_the_text_so_far(tmp_path: Path) -> None:
    terminal = ScriptedTerminal(tmp_path)
    terminal.provider = Unhurried("word " * 500, wait=0.001)

    async def run_story() -> str:
        async with await terminal.session() as session:
            work = Work(terminal.handle(session), terminal.paper, Typist())
            await session.inbox.say("go")
            async with anyio.create_task_group() as group:
                group.start_soon(work.run_until_over, session.run_turns)
                with anyio.fail_after(60):
                    while "word word" not in terminal.out.getvalue():
                        await anyio.sleep(0.001)
                await work.interrupt()
            return session.view.conversation.messages[-1].message.text

    assert "word word" in anyio.run(run_story)
    assert terminal.out.getvalue().count("word") < 500


def test_a_turn_that_ended_before_it_was_watched_is_printed_completely(
    tmp_path: Path,
) -> None:
    terminal = ScriptedTerminal(tmp_path)
    terminal.provider = Unhurried("It is up now.")

    async def run_story() -> None:
        async with await terminal.session() as session:
            handle = terminal.handle(session)
            watch = handle.watch(live=0)
            await session.inbox.say("go")
            await session.run_turns()
            await Work(handle, terminal.paper, Typist()).run_until_over(
                handle.settle, watch=watch
            )

    anyio.run(run_story)

    assert "It is up now." in terminal.out.getvalue()


def test_a_message_of_another_client_is_printed_once(tmp_path: Path) -> None:
    terminal = ScriptedTerminal(tmp_path)
    terminal.provider = Unhurried("Yes.")

    async def run_story() -> None:
        async with await terminal.session() as session:
            handle = terminal.handle(session)
            watch, since = handle.watch(live=0), handle.view
            await session.inbox.say("from elsewhere", when="next")
            work = Work(handle, terminal.paper, Typist())
            await work.run_until_over(handle.settle, watch=watch, since=since)

    anyio.run(run_story)

    assert terminal.out.getvalue().count("from elsewhere") == 1


class Awaited(Unhurried):
    """A model that answers after the status was drawn `times` times."""

    def __init__(self, out: io.StringIO, times: int) -> None:
        super().__init__("Done.")
        self._out, self._times = out, times

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        while self._out.getvalue().count("<") < self._times:
            await anyio.sleep(0.001)
        async for delta in super().stream(request):
            yield delta


@pytest.mark.parametrize("somebody", [True, False])
def test_the_status_shows_the_typing_hint_only_if_input_is_interactive(
    tmp_path: Path, *, somebody: bool
) -> None:
    terminal = ScriptedTerminal(tmp_path)
    terminal.paper = Printer(
        terminal.out, TerminalCapabilities(moves=True, erase_line_sequence="<")
    )
    terminal.provider = Awaited(terminal.out, times=3)
    person = Typist()
    person.reads_input = somebody

    async def run_story() -> None:
        async with await terminal.session() as session:
            await session.inbox.say("go")
            await Work(terminal.handle(session), terminal.paper, person).run_until_over(
                session.run_turns
            )

    anyio.run(run_story)

    assert ("type a message" in terminal.out.getvalue()) is somebody


def test_the_greeting_names_the_git_branch_and_the_permission_mode(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/topic\n")
    out = io.StringIO()

    async def print_greeting(*modes: Mode) -> None:
        provider = ScriptedProvider()
        session = handle_on(await open_session(provider, tmp_path), provider, tmp_path)
        for mode in modes:
            await session.set_mode(mode)
            await greet(session, Printer(out, TerminalCapabilities()))

    anyio.run(print_greeting, "default", "bypass")

    rows = [row for row in out.getvalue().split("\n") if row.startswith(("refold", "Mode"))]
    assert [row.partition(str(tmp_path))[2] for row in rows[:2]] == [
        " · topic", " · topic · mode bypass",
    ]  # fmt: skip
    assert rows[2].startswith("Mode bypass: everything runs without asking, except ")


def test_ctrl_o_shows_the_last_result_and_ctrl_t_shows_the_todos(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], "Done.")

    rows = terminal.tell("go", Key.CTRL_O, Key.CTRL_T, "/quit")

    assert "There are no todos." in rows
    assert sum("def greet():" in row for row in rows) == 1  # the whole result


def test_a_resumed_session_shows_the_last_exchange_fully_and_earlier_ones_shortened(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    long = "\n\n".join(f"Paragraph {n}." for n in range(9))
    terminal = scripted_terminal(
        long, [READ], Reply("I change it.", (EDIT,)), "## Done\n\n- *all* of it"
    )
    terminal.tell("first", "be friendly", "y", "/quit")

    rows = terminal.tell("/quit")

    came = rows[len(rows) - rows[::-1].index("› first") - 1 :]
    assert came[:-2] == [
        "› first",
        "  … 5 lines …",
        *(f"  Paragraph {n}." for n in range(5, 9)),
        "› be friendly",
        "● read_file hello.py",
        "  └ read hello.py, 4 lines",
        "I change it.",
        "● edit_file hello.py",
        "  └ changed hello.py +1 -1",
        "## Done",
        "- *all* of it",
    ]
    assert came[-2].startswith("30 in · ")


def test_a_long_last_exchange_is_shown_as_its_message_and_its_newest_steps(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal(
        *[[("glob", f'{{"pattern": "{n}*"}}')] for n in range(20)], "Nothing."
    )
    terminal.steps = 30
    terminal.tell("look", "/quit")

    rows = terminal.tell("/quit")

    came = rows[len(rows) - rows[::-1].index("› look") - 1 :]
    assert came[1] == "… 10 steps not shown …"
    assert [row for row in came if row.startswith("● ")] == [
        f"● glob {n}*" for n in range(10, 20)
    ]


def test_a_resumed_session_hides_rewound_messages(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.", "Two.")
    terminal.tell("first", "second", "/undo", "y", "/quit")

    rows = terminal.tell("/quit")

    came = rows[len(rows) - rows[::-1].index("› first") :]
    assert "One." in came
    assert not any("second" in row or "Two." in row for row in came)


def test_a_resumed_session_shows_messages_of_a_rewind_that_was_undone(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal("One.", "Two.", "Three.")
    terminal.tell("first", "second", "/undo", "y", "/undo", "y", "/quit")

    rows = terminal.tell("/quit")

    assert "Two." in rows[len(rows) - rows[::-1].index("› second") :]


def test_a_session_resumed_after_a_rewind_says_at_what_its_last_turn_was_stopped(
    scripted_terminal: Callable[..., ScriptedTerminal],
) -> None:
    terminal = scripted_terminal([READ], Reply("I change it.", (EDIT,)), "Two.")
    terminal.tell("first", Key.ESC, "second", "/undo", "y", "/quit")

    rows = terminal.tell("/quit")

    assert "stopped at a question" in rows[len(rows) - rows[::-1].index("› first") :]
