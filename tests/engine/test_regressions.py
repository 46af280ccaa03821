"""Faults that were found by reading the code. Each is fixed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from refold.errors import JournalError
from refold.journal.events.kinds import Ended, Entry
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryBlobs, MemoryStore
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.session.session import Session
from refold.testing.providers import Reply as Line
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect
from refold.views.stream_json.turn_result import turn_outcome
from tests.engine.house import BOOK, WEATHER, entries, kinds, open_session, run, world
from tests.engine.worlds import render_conversation

PEM = "-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY-----"


def test_command_inside_a_private_key_block_is_not_masked() -> None:
    store = MemoryStore()
    hidden = PEM.format("; rm -rf ~; ")

    view = run(
        store,
        world(ScriptedProvider([("book", f'{{"what": "{hidden}"}}')], "Ok."), rules=()),
        "Go",
    )

    assert "rm -rf ~" in bytes(view.conversation.calls[0].call.arguments).decode()


def test_question_shows_the_call_with_its_secrets_unmasked() -> None:
    async def ask_with_secret() -> tuple[str, str]:
        secret = "sk-" + "c" * 30
        scripted_world = world(
            ScriptedProvider([("book", f'{{"what": "{secret}"}}')]), rules=()
        )
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go")
        call = (await session.run_turns()).conversation.calls[0].call
        shown = session.unmasked_call(call)
        return bytes(call.arguments).decode(), bytes(shown.arguments).decode()

    text, result = anyio.run(ask_with_secret)

    assert text == '{"what":"[secret]"}'
    assert result == f'{{"what":"sk-{"c" * 30}"}}'


def test_secret_equal_to_a_role_name_does_not_corrupt_events() -> None:
    async def main() -> str:
        scripted_world = world(ScriptedProvider("Yes, assistant."))
        session = await open_session(MemoryStore(), scripted_world, secrets=["assistant"])
        await session.inbox.say("Hi")
        return render_conversation(await session.run_turns())

    assert anyio.run(main) == "› Hi\n‹ Yes, [secret]."


def test_call_with_the_mask_text_as_argument_runs() -> None:
    orders: list[str] = []

    run(
        MemoryStore(),
        world(ScriptedProvider([("book", '{"what": "[secret]"}')], "Ok."), orders),
        "Go",
    )

    assert orders == ["[secret]"]


def test_refusal_without_text_ends_the_turn() -> None:
    provider = ScriptedProvider(Line(stop="refused"), "Never asked.")

    view = run(MemoryStore(), world(provider), "Hi")

    assert (view.turn.outcome, len(provider.heard)) == ("failed", 1)


@pytest.mark.slow
def test_arguments_nested_too_deeply_are_reported_to_the_model() -> None:
    deep = '{"city": ' + "[" * 100_000 + "]" * 100_000 + "}"

    view = run(MemoryStore(), world(ScriptedProvider([("weather", deep)], "Oh.")), "Hi")

    assert "· failed: The arguments are not a JSON object" in render_conversation(view)


def test_call_stays_done_when_its_full_output_cannot_be_stored() -> None:
    class NoRoom(MemoryBlobs):
        async def put(self, blob: bytes) -> str:
            raise JournalError("no room")

    @tool(Effect.RUN)
    async def book(what: str) -> Reply:
        """Talk too much."""
        return Reply("x" * 100)

    store = MemoryStore(blobs=NoRoom())
    run(
        store,
        world(ScriptedProvider([BOOK], "Ok."), tools=(book,), longest_result=20),
        "Go",
    )

    end = next(e.event for e in entries(store) if isinstance(e.event, Ended))
    assert (end.outcome, end.full_blob) == ("done", "")
    assert "The full text could not be stored: no room" in end.text


def test_path_that_leads_elsewhere_after_approval_is_asked_about_again(
    tmp_path: Path,
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for item in (inside / "sub", outside):
        item.mkdir(parents=True)
    files = DiskFiles(inside)
    texts: list[str] = []

    @tool(Effect.CHANGE, path="path")
    async def write(path: str) -> Reply:
        """Write a file."""
        texts.append(files.real(path))
        return Reply("written")

    async def swap() -> tuple[list[str], str]:
        scripted_world = world(
            ScriptedProvider([("write", '{"path": "sub/a"}')]),
            tools=(write,), rules=(),
            facts=lambda: Facts((str(inside),), follow=files.real),
        )  # fmt: skip
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go")
        await session.run_turns()
        (inside / "sub").rmdir()
        (inside / "sub").symlink_to(outside)
        await session.inbox.answer("call-0", allowed=True)
        call = (await session.run_turns()).conversation.calls[0]
        return texts, f"{call.stage}: {call.reason}"

    done, stands = anyio.run(swap)

    assert done == []
    assert stands == f"asked: {outside / 'a'} is outside the workspace"


def count_lines(script: list[object]) -> int:
    store = MemoryStore()
    run(store, world(ScriptedProvider(*script)), "Umbrella?")  # type: ignore[arg-type]
    return len(store.lines)


SCRIPT: list[object] = [[WEATHER, BOOK], "Take an umbrella."]


@pytest.mark.parametrize("moment", range(2, count_lines(SCRIPT)))
@pytest.mark.parametrize("text", ["stop", "steer and stop"])
def test_model_is_not_asked_again_after_an_interrupt_at_any_event(
    text: str, moment: int
) -> None:
    store, provider = MemoryStore(), ScriptedProvider(*SCRIPT, "More.", "More.")  # type: ignore[arg-type]
    request_counts: list[int] = []

    async def stop_session() -> str:
        session = await open_session(store, world(provider))
        async with anyio.create_task_group() as group:

            async def interrupt() -> None:
                if text == "steer and stop":
                    await session.inbox.say("And Bergen?")
                if await session.inbox.interrupt("enough"):
                    request_counts.append(len(provider.heard))

            def on_event(entry: Entry) -> None:
                if entry.seq == moment:
                    group.start_soon(interrupt)

            session.hub.subscribe(on_event)
            await session.inbox.say("Umbrella?")
            await session.run_turns()
        return turn_outcome(session.view)[0]

    outcome = anyio.run(stop_session)

    parts = kinds(store).split()
    later = parts[parts.index("Stopped") :] if request_counts else []
    assert request_counts in ([], [len(provider.heard)])
    assert "TurnStarted" not in later
    # A stop after the last response finds the turn as good as ended.
    assert outcome == "answered" or request_counts
    assert (
        moment >= count_lines(SCRIPT) - 1 or outcome == "interrupted" or not request_counts
    )


def test_two_concurrent_continues_start_one_turn() -> None:
    store = MemoryStore()

    async def run_twice() -> None:
        session = await open_session(
            store, world(ScriptedProvider("One.", "Two.", "Three."))
        )
        await session.inbox.say("Hi")
        await session.run_turns()
        async with anyio.create_task_group() as group:
            group.start_soon(session.continue_)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(Exception, match="running already"):
                await session.continue_()

    anyio.run(run_twice)

    assert kinds(store).split().count("TurnStarted") == 2


@pytest.mark.parametrize(
    "command", [">f rm -rf x", "2>/dev/null rm -rf x", "{rm,-rf,x}", "echo a; >>f rm x"]
)
def test_deny_rule_applies_behind_redirections_and_braces(command: str) -> None:
    touch = Access("bash", Effect.RUN, command)

    decision = decide(touch, "bypass", [parse("bash(rm *)", "deny")], Facts())

    assert decision.verdict == "deny"


def test_approval_given_while_background_work_stops_is_not_lost() -> None:
    orders, accepted = list[str](), list[bool]()
    sessions = list[Session]()

    @asynccontextmanager
    async def beside() -> AsyncGenerator[None]:
        yield
        if not accepted:
            accepted.append(await sessions[0].inbox.answer("call-0", allowed=True))

    async def scenario() -> View:
        provider = ScriptedProvider([BOOK], "Done.")
        scripted_world = world(provider, orders, rules=(), background=beside)
        sessions.append(await open_session(MemoryStore(), scripted_world))
        await sessions[0].inbox.say("Book.")
        return await sessions[0].run_turns()

    view = anyio.run(scenario)

    assert (accepted, orders, view.turn.outcome) == ([True], ["taxi"], "answered")
