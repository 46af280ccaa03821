"""A session is joined from another process: the same handle, over its socket.

The suite `HandleContract` says what any handle does, and runs for one in this process and
for one behind a socket. The owner is here in this process, too; only the socket is between.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.order_sink import AlreadyAnswered
from refold.client.protocol import ApprovalResponse, Continue, Fork, Rewind
from refold.client.remote_session import attach
from refold.client.session import Session
from refold.client.session_socket import (
    SessionSocket,
    receive_lines,
    runtime_directory,
    socket_path,
)
from refold.client.types import Entry, Frame, ImageData, Permission, Questions
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.errors import BadInput, Held
from refold.journal.events.kinds import Said
from refold.provider.port import Delta, Request
from refold.testing.providers import ScriptedProvider
from refold.values.live import TextCame
from refold.values.messages import ToolCall
from refold.values.usage import Budget

pytestmark = pytest.mark.anyio
TOUCH = ("bash", '{"command": "touch made.txt"}')
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0"
    "f01f0005000180e5d0a5d80000000049454e44ae426082"
)
ASK_USER = ("ask_user", '{"questions": [{"question": "Which?"}]}')


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def runtime() -> Iterator[Mapping[str, str]]:
    """The path of a socket is short, and that of a test is not."""
    mkdtemp = tempfile.mkdtemp(prefix="r")
    yield {"XDG_RUNTIME_DIR": mkdtemp}
    shutil.rmtree(mkdtemp)


class Owner:
    """A session that is open in this process, its socket, and the task that runs its turns."""

    def __init__(
        self, session: Session, launch: Launch, runtime: Mapping[str, str]
    ) -> None:
        self.session, self.launch, self.runtime = session, launch, runtime
        self.socket = SessionSocket(session, runtime)

    async def work(self) -> None:
        while True:
            await self.socket.wait_for_order()
            await self.session.settle()

    @asynccontextmanager
    async def join(self) -> AsyncGenerator[Session, None]:
        launch = make_launch(Path(self.launch.app.directory))
        while not socket_path(self.session.journal_directory, self.runtime).exists():
            await anyio.sleep(0.005)
        async with attach(launch, self.session.id, self.runtime) as session:
            yield session


def make_launch(directory: Path, *replies: Any, **settings: object) -> Launch:
    places = paths(os.environ)
    flags = {"memory": False, "permissions.ask": ("bash(touch *)",), **settings}
    loaded = load_folder_settings(directory, places, os.environ, flags, trust=False)
    scripted = [reply for reply in replies if isinstance(reply, ScriptedProvider)]
    provider = scripted[0] if scripted else ScriptedProvider(*replies)
    options = LaunchOptions(directory=directory, provider=provider)
    return Launch(App(loaded.settings, places, os.environ, options), flags)


@asynccontextmanager
async def owner(
    directory: Path, runtime: Mapping[str, str], *replies: Any
) -> AsyncGenerator[Owner, None]:
    launch = make_launch(directory, *replies)
    session = Session(launch, await launch.start())
    owner = Owner(session, launch, runtime)
    async with anyio.create_task_group() as group:
        group.start_soon(owner.socket.run)
        group.start_soon(owner.work)
        yield owner
        group.cancel_scope.cancel()
    await launch.aclose()


class HandleContract:
    """What a handle on a session guarantees, whichever process has the session open."""

    @pytest.fixture
    def open_session(self, tmp_path: Path, runtime: Mapping[str, str]) -> Any:
        raise NotImplementedError

    async def test_a_message_of_a_joined_session_is_answered(
        self, open_session: Any
    ) -> None:
        async with open_session("Hi.") as session:
            assert await session.say("Hello.", client_key="k1")
            assert not await session.say("Hello.", client_key="k1")
            await session.settle()

            assert session.idle
            assert not session.has_work
            assert session.view.conversation.messages[-1].message.text == "Hi."
            assert session.view.turn.outcome == "answered"

    async def test_a_joined_session_receives_events_and_text_deltas(
        self, open_session: Any
    ) -> None:
        async with open_session("One two three.") as session:
            watch = session.watch()
            await session.say("Hello.")
            await session.settle()
            watch.close()
            frames = [frame async for frame in watch.frames()]

            events = [f.item for f in frames if isinstance(f.item, Entry)]
            text = "".join(f.item.text for f in frames if isinstance(f.item, TextCame))
            assert "One two three.".startswith(text)  # the rest came with the answer
            assert [e.seq for e in events][-1] == session.view.seq
            assert any(isinstance(e.event, Said) for e in events)

    async def test_a_permission_request_of_a_joined_session_is_answered_only_once(
        self, open_session: Any
    ) -> None:
        async with open_session([TOUCH], "Done.") as session:
            await session.say("Go.")
            await session.settle()
            (request,) = session.requests
            assert isinstance(request, Permission)

            assert session.unmasked_call(request.call.call).name == "bash"
            assert await session.answer(request, True)
            assert not await session.answer(request, False)
            await session.settle()

            assert Path(session.view.session.directory, "made.txt").exists()
            assert session.idle

    async def test_questions_of_the_model_are_answered_in_a_joined_session(
        self, open_session: Any
    ) -> None:
        async with open_session([ASK_USER], "Red it is.") as session:
            await session.say("Paint.")
            await session.settle()
            (request,) = session.requests
            assert isinstance(request, Questions)

            assert await session.answer(request, True, answers=("red",))
            await session.settle()

            assert session.view.conversation.messages[-1].message.text == "Red it is."

    async def test_mode_effort_budget_steps_and_agent_are_set_in_a_joined_session(
        self, open_session: Any
    ) -> None:
        async with open_session() as session:
            assert await session.set_mode("plan")
            assert await session.set_effort("high")
            assert await session.set_budget(Budget(tokens=1000))
            assert await session.set_steps(7)
            assert await session.set_agent("plan")
            assert await session.rename("mine")
            assert await session.tag(["+one"])
            await session.wait_for_change(after=session.view.seq - 1)

            assert (session.mode, session.effort, session.steps) == ("plan", "high", 7)
            assert (session.budget.tokens, session.agent) == (1000, "plan")
            assert session.view.session.name == "mine"
            assert session.view.session.tags == ("one",)

    async def test_invalid_requests_to_a_session_raise_bad_input(
        self, open_session: Any
    ) -> None:
        async with open_session() as session:
            with pytest.raises(BadInput, match="no turn to continue"):
                await session.send(Continue())
            with pytest.raises(BadInput, match="not a valid name"):
                await session.rename("--flag")
            with pytest.raises(BadInput, match="agent"):
                await session.set_agent("nobody")

    async def test_interrupt_stops_a_turn_in_a_joined_session(
        self, open_session: Any
    ) -> None:
        async with open_session([TOUCH]) as session:
            await session.say("Go.")
            await session.settle()
            assert await session.interrupt()
            await session.settle()

            assert session.view.turn.outcome == "interrupted"
            assert not await session.interrupt()

    async def test_a_joined_session_is_compacted_rewound_and_forked(
        self, open_session: Any
    ) -> None:
        async with open_session("Hi.", "A summary.") as session:
            await session.say("Hello.")
            await session.settle()
            seq = next(
                e.seq for e in await session.reports.entries() if isinstance(e.event, Said)
            )

            assert await session.send(Fork(None))
            copy = await session.fork()
            assert copy not in ("", session.id)
            assert await session.compact(prune=True)
            before = session.view
            report = await session.workspace.rewind(seq, "conversation")
            assert not list(session.view.conversation.messages)
            assert report.preview.plan.mark
            assert await session.send(Rewind(report.undo, "conversation"))
            assert session.view.conversation.size == before.conversation.size

    async def test_interrupt_stops_a_compaction_and_sends_its_message(
        self, open_session: Any
    ) -> None:
        class Slow(ScriptedProvider):
            async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
                if len(self.heard) == 2 and not began.is_set():
                    began.set()
                    await anyio.sleep_forever()
                async for delta in super().stream(request):
                    yield delta

        began, ends = anyio.Event(), list[bool]()
        async with open_session(Slow("Hi.", "Hi again.", "Done.")) as session:
            assert not await session.compact()
            for _ in range(2):
                await session.say("Hello. " * 1000)
                await session.settle()
            async with anyio.create_task_group() as group:

                async def compact() -> None:
                    ends.append(await session.compact())

                group.start_soon(compact)
                await began.wait()
                assert session.compacting
                assert await session.interrupt("Do this instead.")
            await session.settle()

            assert ends == [False]
            assert not session.compacting
            texts = [stored.message.text for stored in session.view.conversation.messages]
            assert texts[1:] == ["Hi.", texts[0], "Hi again.", "Do this instead.", "Done."]

    async def test_a_message_with_an_image_is_queued_for_the_next_turn(
        self, open_session: Any
    ) -> None:
        async with open_session("Red.") as session:
            image = ImageData(PIXEL, "image/png", "red.png")
            assert await session.say("Which colour?", when="next", images=(image,))
            await session.settle()

            assert session.view.conversation.messages[0].message.images
            with pytest.raises(BadInput, match="no text"):
                await session.say("  ")

    async def test_events_of_a_joined_session_are_read_from_any_position(
        self, open_session: Any
    ) -> None:
        async with open_session("Hi.") as session:
            await session.say("Hello.")
            await session.settle()
            every = [entry.seq for entry in await session.reports.entries()]
            late = list[int]()
            async for entry in session.events(every[1]):
                late.append(entry.seq)
                if entry.seq == every[-1]:
                    break

            assert late == every[2:]


class TestASessionHere(HandleContract):
    @pytest.fixture
    def open_session(self, tmp_path: Path, runtime: Mapping[str, str]) -> Any:
        @asynccontextmanager
        async def open_session_here(*replies: Any) -> AsyncGenerator[Session, None]:
            launch = make_launch(tmp_path, *replies)
            yield Session(launch, await launch.start())
            await launch.aclose()

        return open_session_here


class TestAJoinedSession(HandleContract):
    @pytest.fixture
    def open_session(self, tmp_path: Path, runtime: Mapping[str, str]) -> Any:
        @asynccontextmanager
        async def join_session(*replies: Any) -> AsyncGenerator[Session, None]:
            async with owner(tmp_path, runtime, *replies) as here, here.join() as session:
                yield session

        return join_session


@asynccontextmanager
async def open_with_clients(
    directory: Path, runtime: Mapping[str, str]
) -> AsyncGenerator[tuple[Owner, Session, Session]]:
    """Yield an owner, and two clients of it; the first has begun a turn that asks about a
    call.
    """
    async with (
        owner(directory, runtime, [TOUCH], "Done.") as here,
        here.join() as one,
        here.join() as two,
    ):
        await one.say("Go.")
        await one.settle()
        yield here, one, two


async def test_the_first_answer_of_two_clients_counts_and_the_second_is_refused(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with open_with_clients(tmp_path, runtime) as (here, one, two):
        while not two.requests:
            await two.wait_for_change(after=two.view.seq)
        (request,) = two.requests
        assert isinstance(request, Permission)

        assert await one.answer(request.id, True)
        assert not await two.answer(request, False)

        await two.settle()
        assert two.view.turn.outcome == "answered"
        assert here.session.view.turn.outcome == "answered"


async def test_an_answer_after_the_end_of_the_turn_raises_already_answered(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with open_with_clients(tmp_path, runtime) as (_, one, two):
        (request,) = one.requests
        assert isinstance(request, Permission)
        assert await one.answer(request, True)
        await one.settle()

        with pytest.raises(AlreadyAnswered, match="'call-0' waits for an answer any more"):
            await two.send(ApprovalResponse(request.id, False, request.call.hash))


async def test_a_client_that_joins_during_a_response_receives_its_earlier_text(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    class Halting(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            async for delta in super().stream(request):
                yield delta
                await go_on.wait()

    go_on = anyio.Event()
    launch = make_launch(tmp_path)
    options = LaunchOptions(directory=tmp_path, provider=Halting("One two three."))
    launch = Launch(App(launch.app.settings, launch.app.paths, os.environ, options))
    session = Session(launch, await launch.start())
    here, frames = Owner(session, launch, runtime), list[Frame]()
    async with anyio.create_task_group() as group:
        group.start_soon(here.socket.run)
        await session.say("Go.")
        group.start_soon(session.settle)
        while not session.view.turn.seq:
            await session.wait_for_change(after=session.view.seq)
        await anyio.wait_all_tasks_blocked()
        async with here.join() as late:
            assert late.running
            watch = late.watch()
            go_on.set()
            await late.settle()
            watch.close()
            frames += [frame async for frame in watch.frames()]
        group.cancel_scope.cancel()
    await launch.aclose()

    text = "".join(f.item.text for f in frames if isinstance(f.item, TextCame))
    assert text == "One two three."


async def test_an_order_is_acknowledged_after_the_documents_of_its_events(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    kinds = list[str]()
    async with owner(tmp_path, runtime, "One two three. " * 200) as here, here.join():
        path = socket_path(here.session.journal_directory, runtime)
        async with await anyio.connect_unix(path) as stream:
            lines = receive_lines(stream.receive)
            await stream.send(b'{"reads_journal": true}\n')
            await stream.send(b'{"type": "user_message", "text": "Go."}\n')
            async for line in lines:
                kinds.append(msgspec.json.decode(line)["type"])
                if kinds[-1] == "text_delta":  # the feed gathers more of it now
                    order = b'{"type": "steps", "steps": 7, "client_key": "k"}\n'
                    await stream.send(order)
                if kinds[-1] == "order_taken":
                    break

    assert "steps" in kinds


async def test_a_permission_request_shows_the_unmasked_secret_to_the_client(
    tmp_path: Path, runtime: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    call = ("bash", f'{{"command": "touch made.txt {secret}"}}')
    async with owner(tmp_path, runtime, [call], "Done.") as here, here.join() as session:
        await session.say("Go.")
        await session.settle()
        (request,) = session.requests
        assert isinstance(request, Permission)

        assert secret not in str(request.call.call.arguments)
        result = session.unmasked_call(request.call.call)
        assert isinstance(result, ToolCall)
        assert secret.encode() in bytes(result.arguments)


async def test_a_client_that_leaves_does_not_stop_the_turn(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with owner(tmp_path, runtime, [TOUCH], "Done.") as here:
        async with here.join() as session:
            await session.say("Go.")
            await session.settle()
        assert here.session.requests

        async with here.join() as again:
            (request,) = again.requests
            assert isinstance(request, Permission)
            await again.answer(request, True)
            await again.settle()
        assert here.session.view.turn.outcome == "answered"


async def test_orders_raise_after_the_owner_closed_the_session(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with anyio.create_task_group() as group:
        async with owner(tmp_path, runtime) as here:
            joined = here.join()
            session = await joined.__aenter__()
            here.socket.follow(await here.session.new())
            with pytest.raises(BadInput, match="has closed it"):
                await session.wait_for_change(after=session.view.seq)
            with pytest.raises(BadInput, match="has closed it"):
                await session.say("Hello?")
            assert session.end_reason
            await joined.__aexit__(None, None, None)
        group.cancel_scope.cancel()


async def test_the_session_socket_is_private_and_removed_at_the_end(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with owner(tmp_path, runtime) as here, here.join():
        path = socket_path(here.session.journal_directory, runtime)
        modes = path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777
        stored = here.session.journal_directory
    assert modes == (0o600, 0o700)
    assert not path.exists()
    with pytest.raises(Held, match="no process can be joined"):
        async with attach(make_launch(tmp_path), stored.name, runtime):
            pass


async def test_a_runtime_directory_that_others_can_write_gets_no_session_socket(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    directory = runtime_directory(runtime)
    directory.mkdir(mode=0o700)
    directory.chmod(0o777)
    async with owner(tmp_path, runtime) as here:
        await anyio.sleep(0.05)
        with pytest.raises(Held):
            async with attach(here.launch, here.session.id, runtime):
                pass
    assert list(directory.iterdir()) == []


async def test_a_client_that_disconnects_with_unread_data_does_not_end_the_session(
    tmp_path: Path, runtime: Mapping[str, str]
) -> None:
    async with owner(tmp_path, runtime, "Hi.") as here:
        async with here.join():
            pass  # it listens
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(socket_path(here.session.journal_directory, runtime)))
                client.sendall(b"{}\n")
                await anyio.wait_readable(client)  # data have arrived, and are not read
        async with here.join() as session:
            assert (await session.run("Hello.")).text == "Hi."
