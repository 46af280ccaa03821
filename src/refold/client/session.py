"""The handle on a session: it takes orders, and gives events and documents.

Every client uses a session through this class. The session behind it has the journal and
runs the turns. Here are running a turn and switching; orders as methods are in
`client.session_orders`, and the state of the session is in `client.session_state`.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from refold.client.dispatch import BUSY
from refold.client.launch import Ask, Launch, OpenedSession, ResumeTarget, untrusted
from refold.client.protocol import (
    Continue,
    ModeAfterPlan,
    PlanApproval,
)
from refold.client.session_orders import SessionOrders
from refold.errors import BadInput, first
from refold.journal.events.kinds import Frame

if TYPE_CHECKING:
    from refold.app.mcp_servers import McpServers
    from refold.client.questions import Approve, Question
    from refold.client.result import Result


class SwitchResult(Struct, frozen=True):
    """The handle on the new session, and what the user must know."""

    session: "Session"
    notices: tuple[str, ...] = ()


class Session(SessionOrders):
    """One session. One turn runs at a time."""

    def __init__(
        self, launch: Launch, opened: OpenedSession, approve: "Approve | None" = None
    ) -> None:
        super().__init__(launch, opened)
        self._approve, self._busy = approve, False
        # Do turns end with this process? Else they run on where the session is open.
        self.owns_turns = True

    @property
    def ended(self) -> str:
        """Why nothing more comes of this handle; "": something may."""
        return ""

    @property
    def has_work(self) -> bool:
        """Is there something that `step` would do?"""
        return not self.idle or self._orders.waiting

    @property
    def stored_in(self) -> Path:
        """The directory of its journal, if one is kept."""
        return self._app.home.path(self.id)

    async def close(self) -> None:
        """Close the journal. The session can be resumed; its watchers end."""
        await self._launch.leave(self._engine)

    async def run(self, text: str, images: Sequence[str | Path] = ()) -> "Result":
        """Send a message and run the turn. Raises `BadInput` if one runs already.

        `images` are files for the model to see.
        """
        from refold.tools.images import image_file

        shown = [image_file(Path(name), str(name)) for name in images]
        return await self._turn(lambda: self.say(text, images=shown))

    async def continue_(self) -> "Result":
        """Continue where the last turn ended, or finish one that a crash cut off."""

        async def order() -> None:
            if self.idle:
                await self.send(Continue())

        return await self._turn(order)

    async def approve_plan(self, text: str = "", mode: ModeAfterPlan = "") -> "Result":
        """Approve the plan that waits, or `text` instead of it, and carry it out."""
        return await self._turn(lambda: self.send(PlanApproval(0, True, text, mode=mode)))

    async def reject_plan(self, feedback: str = "") -> "Result":
        """Reject the plan that waits. With `feedback` the model revises it."""
        order = PlanApproval(0, False, feedback=feedback)
        return await self._turn(lambda: self.send(order))

    @asynccontextmanager
    async def stream(self, text: str) -> AsyncGenerator[AsyncIterator[Frame], None]:
        """Like `run`, and give every event and piece of text as it comes.

            async with session.stream("Fix the test.") as frames:
                async for frame in frames:
                    print(frame.item)
            print(session.result.text)

        The frames end with the turn. Leaving earlier stops it.
        """
        watch = self.watch()

        async def turn() -> None:
            try:
                await self.say(text)
                await self._until_settled()
            finally:
                watch.close()

        with self._exclusively(), _one_error():
            async with anyio.create_task_group() as group:
                group.start_soon(turn)
                try:
                    async with aclosing(watch.frames()) as frames:
                        yield frames
                finally:
                    await self.cancel("no client is connected any more")

    @property
    def result(self) -> "Result":
        """The result of the last turn."""
        from refold.client.result import result_of

        return result_of(self.view, self.id)

    @property
    def mcp(self) -> "McpServers | None":
        """The MCP servers that are configured here; None: there are none."""
        return self._app.mcp

    @property
    def hooks(self) -> Sequence[tuple[str, str]]:
        """The hooks that count here: what each does, and the file that has it."""
        return self._app.hooks.listed if self._app.hooks else ()

    @property
    def questions(self) -> "tuple[Question, ...]":
        """The calls that wait for `answer`."""
        from refold.client.questions import questions

        return questions(self._engine)

    async def new(self) -> "Session":
        """Close this session, and open a new one in the same directory."""
        opened = await self._launch.start()
        await self.close()
        return Session(self._launch, opened, self._approve)

    async def switch(self, target: ResumeTarget, ask: Ask | None = None) -> SwitchResult:
        """Close this session, and open the target in its directory.

        `ask` is asked whether a folder is trusted; without it, it is not. Raises if the
        target cannot be opened; then this session stays open.
        """
        opened = await self._launch.switch(self._engine, target, ask or untrusted)
        session = Session(self._launch, opened, self._approve)
        return SwitchResult(session, opened.notices)

    async def _turn(self, order: Callable[[], Awaitable[object]]) -> "Result":
        with self._exclusively():
            await order()
            return await self._until_settled()

    @contextmanager
    def _exclusively(self) -> Generator[None]:
        if self._busy or self.running:
            raise BadInput(BUSY)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    async def _until_settled(self) -> "Result":
        with _one_error():
            async with anyio.create_task_group() as group:
                if self._approve is not None:
                    from refold.client.questions import answer_all

                    group.start_soon(answer_all, self._engine, self._approve)
                await self.settle()
                while self._approve is not None and self.questions:
                    await self.changed(after=self.view.seq)
                    await self.settle()
                group.cancel_scope.cancel()
        return self.result


@contextmanager
def _one_error() -> Generator[None]:
    """Let the error out that a task failed with, not the group that wraps it."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first(group) from group
