"""The background process that makes notes: nothing waits for it, and it always ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.app.memory_worker import notes_model_for, open_project, start_worker
from refold.app.model_connections import NO_BACKGROUND
from refold.cli.main import main
from refold.journal.state.fold import fold
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.memory.workplace import Workplace, note

WORDS = "always answer in German, please"
NOTED = ("Preferences", "Answer in German")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.fixture
def user_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a person, in whose sessions processes may be started."""
    monkeypatch.delenv(NO_BACKGROUND)
    return dict(os.environ)


async def write_settings(place: Workplace, url: str) -> None:
    file = anyio.Path(os.environ["REFOLD_HOME"]) / "config.toml"
    await file.parent.mkdir(parents=True, exist_ok=True)
    await file.write_text(
        f'[providers.mine]\nwire = "openai-chat"\nbase_url = "{url}"\n'
        '[models]\nmain = "mine/big"\n[http]\nretries = 0\n'
    )


async def make_session(place: Workplace, text: str = WORDS) -> str:
    """Store a session that a person has had with the model `mine/big` and left."""
    async with Agent(directory=place.directory).session() as session:
        place.remembering.pending.put(session.id)
        await session.run(text)
        return session.id


def run_with_model_server(
    function: Callable[[list[ReceivedRequest]], Awaitable[None]],
    place: Workplace,
    notes: Callable[[ReceivedRequest], Answer],
) -> None:
    async def serve() -> None:
        def answer_request(request: ReceivedRequest) -> Answer:
            distils = b"<session>" in request.body
            return notes(request) if distils else answer("openai-chat", Reply("Gut."))

        async with wire_server(answer_request) as server:
            await write_settings(place, server.url)
            await function(server.heard)

    anyio.run(serve)


def answer_with_notes(request: ReceivedRequest) -> Answer:
    """Return the answer of a model that has understood its task."""
    content = json.loads(request.body)["messages"][-1]["content"]
    seq = int(content.split("] person:")[0].rsplit("[", 1)[1])
    notes = {"notes": [note("preferences", "Answer in German", seq)]}
    return answer("openai-chat", Reply(json.dumps(notes)))


async def wait_for_exit(process: subprocess.Popen[bytes] | None) -> int:
    assert process is not None
    return await anyio.to_thread.run_sync(process.wait, 60)


def test_no_memory_worker_is_started_in_tests(place: Workplace) -> None:
    place.remembering.pending.put("20260101-000000-aaaa")

    assert start_worker([place.remembering], os.environ) is None


def test_no_memory_worker_is_started_without_pending_sessions(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    assert start_worker([place.remembering], user_environment) is None


def test_notes_are_made_by_the_small_model_or_else_the_model_of_the_session(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_PROVIDERS__MINE__WIRE", "openai-chat")
    monkeypatch.setenv("REFOLD_PROVIDERS__MINE__BASE_URL", "http://127.0.0.1:9")

    def chosen(model: str, *, asked: bool = False, small: str = "") -> str:
        monkeypatch.setenv("REFOLD_MODELS__SMALL", small)
        app, _ = open_project(place.directory, os.environ)
        view = fold(())
        conversation = type(view.conversation)(
            system_prompt=type(view.conversation.system_prompt)(model=model)
        )
        aide = notes_model_for(app, type(view)(conversation=conversation), asked=asked)
        return aide.name if aide else ""

    texts = [
        chosen("mine/big"),
        chosen("mine/big", small="mine/small"),
        chosen("script/x"),
        chosen("script/x", small="mine/small", asked=True),
        chosen(""),
        chosen("local/qwen2.5-coder-1.5b"),
        chosen("local/qwen2.5-coder-1.5b", asked=True),
    ]

    assert texts == [
        "mine/big", "mine/small", "", "", "", "", "local/qwen2.5-coder-1.5b",
    ]  # fmt: skip


def test_memory_update_makes_pending_notes_immediately(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.directory)

    async def run_scenario(_: list[ReceivedRequest]) -> None:
        await make_session(place)
        assert await anyio.to_thread.run_sync(main, ["memory", "update"]) == 0
        assert await anyio.to_thread.run_sync(main, ["memory", "update"]) == 0

    run_with_model_server(run_scenario, place, answer_with_notes)

    out = capfd.readouterr().out
    assert out == "+ Preferences: Answer in German\nnothing new to remember\n"
    assert place.notes == [NOTED]


def test_memory_update_with_a_session_learns_it_again(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.directory)

    async def run_scenario(_: list[ReceivedRequest]) -> None:
        session = await make_session(place)
        await anyio.to_thread.run_sync(place.learn_from, session)  # it learns nothing
        for words in (["update"], ["update", session]):
            assert await anyio.to_thread.run_sync(main, ["memory", *words]) == 0

    run_with_model_server(run_scenario, place, answer_with_notes)

    assert capfd.readouterr().out.splitlines()[-1] == "+ Preferences: Answer in German"
    assert place.notes == [NOTED]


@pytest.mark.slow
def test_the_memory_worker_makes_notes_in_the_background(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    async def run_scenario(requests: list[ReceivedRequest]) -> None:
        session = await make_session(place)
        # The model server runs in this event loop: waiting for the worker here would block both.
        process = start_worker([place.remembering], user_environment)
        assert await wait_for_exit(process) == 0
        assert place.notes == [NOTED]
        assert place.remembering.pending.sessions() == []
        assert fold(place.remembering.entries(session)).session.memory_up_to
        assert "big" in json.loads(requests[-1].body)["model"]

    run_with_model_server(run_scenario, place, answer_with_notes)


@pytest.mark.slow
def test_work_of_a_killed_memory_worker_is_finished_at_the_next_start(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    reached = anyio.Event()

    def hanging(_: ReceivedRequest) -> Answer:
        reached.set()
        return Answer(then="hang")

    async def kill(_: list[ReceivedRequest]) -> None:
        await make_session(place)
        process = start_worker([place.remembering], user_environment)
        assert process is not None
        with anyio.fail_after(60):
            await reached.wait()
        os.kill(process.pid, signal.SIGKILL)
        assert await wait_for_exit(process) < 0

    async def restart_worker(_: list[ReceivedRequest]) -> None:
        assert await wait_for_exit(start_worker([place.remembering], user_environment)) == 0

    run_with_model_server(kill, place, hanging)
    assert place.notes == []
    run_with_model_server(restart_worker, place, answer_with_notes)
    assert place.notes == [NOTED]


@pytest.mark.slow
def test_the_memory_worker_imports_no_module_of_the_workspace(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    (place.directory / "refold").mkdir()
    (place.directory / "refold" / "__init__.py").write_text("open('/tmp/owned', 'w')\n")
    (place.directory / "msgspec.py").write_text("raise SystemExit(3)\n")

    async def run_scenario(_: list[ReceivedRequest]) -> None:
        await make_session(place)
        assert await wait_for_exit(start_worker([place.remembering], user_environment)) == 0

    run_with_model_server(run_scenario, place, answer_with_notes)

    assert place.notes == [NOTED]


@pytest.mark.slow
def test_two_memory_workers_at_once_make_the_notes_once(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    async def run_scenario(requests: list[ReceivedRequest]) -> None:
        await make_session(place)
        both = [start_worker([place.remembering], user_environment) for _ in range(2)]
        assert [await wait_for_exit(popen) for popen in both] == [0, 0]
        assert sum(b"<session>" in request.body for request in requests) == 1

    run_with_model_server(run_scenario, place, answer_with_notes)

    assert place.notes == [NOTED]


@pytest.mark.slow
def test_the_memory_worker_ends_after_its_maximum_lifetime(
    place: Workplace, user_environment: dict[str, str]
) -> None:
    code = (
        "import sys; from refold.app import memory_worker as finishing\n"
        "finishing.MAX_LIFE_SECONDS = 1\n"
        "finishing.run_worker(sys.argv[1:])\n"
    )

    async def run_scenario(_: list[ReceivedRequest]) -> None:
        session = await make_session(place)
        command_line = [sys.executable, "-c", code, str(place.directory)]
        process = subprocess.Popen(command_line, env=user_environment)
        assert await wait_for_exit(process) == -signal.SIGALRM
        assert place.remembering.pending.sessions() == [session]

    run_with_model_server(run_scenario, place, lambda _: Answer(then="hang"))


def test_notes_are_made_of_pending_sessions_oldest_first(place: Workplace) -> None:
    pending = place.remembering.pending
    for session in ("20260102-000000-bbbb", "20260101-000000-aaaa", "20260103-000000-cccc"):
        pending.put(session)

    assert pending.sessions() == [
        "20260101-000000-aaaa", "20260102-000000-bbbb", "20260103-000000-cccc",
    ]  # fmt: skip
