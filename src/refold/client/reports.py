"""Reports on a session, read from its journal: its tree, cost, calls and claims.

Nothing is written and no model is called. `views` decides how a report looks.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from refold.agents.profile import OfferedTools
from refold.app.app import App
from refold.errors import BadInput
from refold.journal.events.kinds import ChildEnded, Entry
from refold.journal.state.event_history import EventHistory
from refold.journal.state.session_tree import ROOT_ADDRESS, Node, find
from refold.session.session import Session as Engine
from refold.values.live import ChildMoved
from refold.values.messages import ToolCall
from refold.views.context import ContextUsage, context_usage
from refold.views.cost import Spending, spending
from refold.views.timeline import TimelineRow, timeline

if TYPE_CHECKING:
    from refold.client.export import ExportChoice, Exported, ExportedFile
    from refold.client.verify import VerifyReport


_MAX_OUTPUT_BYTES = 256 * 1024  # of a background command
_NO_JOURNAL = (
    "No journal of this session is stored on this machine, so it cannot be exported here."
)


class Reports:
    """Reports on one session; each shows the state when it is requested."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def entries(self, after: int = 0) -> Sequence[Entry]:
        """Return the events after event `after`, oldest first."""
        return await self._engine.record.entries(after)

    async def history(self) -> EventHistory:
        """Return the journal. Only the events that a reader uses are decoded, such as the
        newest.
        """
        return await self._engine.record.history()

    async def tree(self) -> Node:
        """Return the session with all its subagents."""
        entries = tuple(await self.entries())
        return await anyio.to_thread.run_sync(self._tree, entries)

    async def node(self, address: str) -> Node:
        """Return the session or subagent at an address such as root/child-1.

        Raises `BadInput` if there is none.
        """
        names = address.strip("/").split("/")
        if names[0] == ROOT_ADDRESS:  # `find` begins at the root
            names = names[1:]
        node, missing_names = find(await self.tree(), names)
        if missing_names:
            raise BadInput(f"{address!r} is not a session: give root, root/child-1, …")
        return node

    async def cost(self) -> Spending:
        """Return the cost by turn, by model and by purpose, with subagents."""
        entries = await self.entries()
        ends = [entry.event for entry in entries if isinstance(entry.event, ChildEnded)]
        return spending(entries, {end.child: end.spent for end in ends})

    def context(self) -> ContextUsage:
        """Return how much of the context window each kind of content takes."""
        return context_usage(
            self._engine.view, self._app.settings.context.default_window_tokens
        )

    async def timeline(self) -> Sequence[TimelineRow]:
        """Return every call of the session and its subagents, with its time and its cost."""
        return timeline(await self.tree(), time.time(), self._label())

    async def verify(self, turn: int = 0) -> "VerifyReport":
        """Check the claims of the model in a turn (0: the last) against the journal and the
        files.

        Raises `BadInput` if there is no such turn.
        """
        from refold.claims.check import Checking
        from refold.client.verify import VerifyReport, claims_of_turn

        app = self._app
        id_ = self._engine.view.session.id
        turn_claims = claims_of_turn(await self.entries(), turn)
        sessions = app.home if app.options.keep else None
        checking = Checking(self._engine.record, app.workspace.files, sessions)
        checked = await checking.check(turn_claims.claims)
        return VerifyReport(id_, turn_claims, tuple(checked))

    def export(
        self,
        path: Path,
        choice: "ExportChoice",
        *,
        force: bool = False,
        on_piece: Callable[[], None] = lambda: None,
    ) -> "ExportedFile":
        """Write the session, as it is stored, to the file `path`. Call it in a thread.

        `on_piece` is called before each piece. If it raises an error, no file is left.
        Raises `BadInput` if no journal is stored, or if the file exists and `force` is not
        given.
        """
        from refold.client.export import ExportedFile, save

        export = self._export(choice, on_piece)
        size = save(path, export.pieces, force=force)
        return ExportedFile(path, size, export.summary, tuple(export.damages))

    def export_text(
        self, choice: "ExportChoice", *, on_piece: Callable[[], None] = lambda: None
    ) -> str:
        """Return the stored session as text, without a file. Raises `BadInput` if no
        journal is stored.
        """
        export = self._export(choice, on_piece)
        return b"".join(export.pieces).decode(errors="replace")

    def _export(self, choice: "ExportChoice", on_piece: Callable[[], None]) -> "Exported":
        """Return the stored session; `on_piece` is called before each piece and at the end.

        Raises `BadInput` if no journal is stored.
        """
        from refold.client.export import export_session

        id_ = self._engine.view.session.id
        if not (self._app.options.keep and self._app.home.exists(id_)):
            raise BadInput(_NO_JOURNAL)
        export = export_session(self._app.home, id_, choice, self._label())

        def pieces() -> Iterator[bytes]:
            for piece in export.pieces:
                on_piece()
                yield piece
            on_piece()

        return replace(export, pieces=pieces())

    async def background_output(self, name: str, max_bytes: int = _MAX_OUTPUT_BYTES) -> str:
        """Return the output of a background command, but at most its last `max_bytes`.

        Raises `BadInput` if another process runs the command: only that process has the
        output.
        """
        command = self._engine.view.background.command(name)
        running = self._engine.background
        if command is None:
            raise BadInput(f"there is no background command {name!r} in this session")
        if command.end is not None:
            if not command.end.full_blob:  # the event has all of it
                return command.end.text
            content = await self._engine.record.get(command.end.full_blob)
            return content.decode()[-max_bytes:]
        if command.foreign or running is None:
            raise BadInput(
                f"what {name!r} has printed is known where the session is open: look there"
            )
        return self._app.models.masks.mask_event(await running.read_tail(name, max_bytes))

    def next_tools(self) -> OfferedTools:
        """Return the tools that the next turn would have if it began now."""
        turn_context = self._app.turn_context(
            self._engine.record, self._engine.view.session.id
        )
        world = turn_context(self._engine.view)
        return OfferedTools(tuple(world.tools), world.deferred)

    async def child_progress(self) -> Mapping[str, ChildMoved]:
        """Return the newest progress of each running subagent, by the subagent's address."""
        watch = self._engine.hub.watch()
        watch.close()  # then it ends after the frames that it has now
        frames = [frame.item async for frame in watch.frames()]
        return {item.node: item for item in frames if isinstance(item, ChildMoved)}

    def _label(self) -> Callable[[ToolCall], str]:
        """Return a function that describes a call in one line."""
        from refold.views.call_summary import label

        tools = {tool.name: tool for tool in self._app.all_tools}
        return lambda call: label(call, tools.get(call.name))

    def _tree(self, entries: tuple[Entry, ...]) -> Node:
        """Return the stored session with its subagents. If it is not stored, make it from
        `entries`.
        """
        view = self._engine.view
        index = self._app.home
        if self._app.options.keep and index.exists(view.session.id):
            return index.tree(view.session.id)
        # `written`: this process has the session open.
        return Node(ROOT_ADDRESS, view.session.id, entries, view, written=True)
