"""Follows the session that is shown: its events, its turns and its questions.

Events become messages for `update`; turns run until nothing is left to do; questions and
plans are put one after the other, as in the line terminal.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import anyio
from msgspec.structs import replace

from refold.client.session import Session
from refold.client.types import (
    BackgroundCommand,
    ChildAnswered,
    ChildAsked,
    ChildEnded,
    Entry,
    Frame,
    Subscription,
    TaskBoard,
    events,
)
from refold.commands.session_lines import is_cut_off, sentence
from refold.console import plan_prompt as plans
from refold.console.asker import Asker
from refold.console.printer import Printer
from refold.errors import RefoldError
from refold.tui import messages
from refold.tui.host import ScreenReader
from refold.tui.messages import (
    BoardRead,
    Facts,
    FactsChanged,
    Loaded,
    Message,
    News,
    OutputLoaded,
    OutputsRead,
    PanelName,
    TranscriptLoaded,
)
from refold.values.live import ChildMoved
from refold.views.background_list import last_line
from refold.views.escape import escape_to_one_line
from refold.views.notices import notification
from refold.views.question_keys import DraftMessage
from refold.views.screen.screen import screen_of
from refold.views.styled import Line

_GROUPING_SECONDS = (
    0.3  # seconds for which a question waits for others of the same response
)
_POLL_SECONDS = (
    1.0  # seconds between two reads of a watched command or of a panel's content
)
# Events of a session beyond which its end is shown before all of it is folded.
_LONG_SESSION_EVENTS = 2_000
_MAX_TAIL_EVENTS = 400  # events of that end, at most
_MAX_LAST_LINE_BYTES = 4_000  # of output in which the last line of a command is searched


class Display(Protocol):
    """What shows a session: the runtime of the full screen."""

    @property
    def plans(self) -> plans.PlanQueue: ...
    def post(self, message: Message) -> None: ...
    def print_row(self, row: Line) -> None: ...
    def ring(self, reason: str) -> None:
        """Notify the person, who may be looking elsewhere."""
        ...

    def notify(self, text: str) -> None:
        """Notify the person when the model asks for it."""
        ...

    def run_delayed(self) -> None:
        """Start the commands that waited for this turn. They may switch sessions."""
        ...


class SessionFollower:
    """Follows one session. `printer` and `reader` are for its questions."""

    def __init__(
        self, session: Session, display: Display, printer: Printer, reader: ScreenReader
    ) -> None:
        self._session, self._display, self._post = session, display, display.post
        self._printer, self._reader = printer, reader
        self._asker = Asker(session, printer, reader, self._send_draft)
        self._watch = session.watch()  # buffers events while earlier ones are loaded
        self._news, self.may_work = anyio.Event(), anyio.Event()
        self._ordered = anyio.Event()
        self._seen, self._branch = 0, ""
        self._watched = ""  # the subagent whose transcript is shown
        self._moved, self._follows = anyio.Event(), False
        self._panel: PanelName = ""  # the open panel whose content comes from no event
        self._opened = anyio.Event()

    async def run(self, scope: anyio.CancelScope) -> None:
        """Follow the session until the scope is cancelled."""
        session = self._session
        watch, leave = self._watch, session.on_event(self._on_event)
        try:
            with scope:
                async with anyio.create_task_group() as group:
                    for task in (
                        self._run_turns, self._put_questions, self._ask_about_plans, self._load_watched, self._load_panel,
                    ):  # fmt: skip
                        group.start_soon(task)
                    await self._post_frames(watch)
        finally:
            leave()
            watch.close()

    def wake_for_order(self) -> None:
        """Wake the turn loop after an order, from here or from another client."""
        self.may_work.set()
        self._ordered.set()

    def watch(self, command: messages.Watch | messages.Follow) -> None:
        """Follow this subagent, this background command or this panel.

        Questions of the watched subagent are put before others.
        """
        match command:
            case messages.Watch(node):
                self._watched = node
                self._moved.set()
                self._asker.prefer_subagent(node)
            case messages.Follow(panel):
                self._panel = panel
                self._opened.set()

    def facts(self) -> Facts:
        now = self._session
        return Facts(
            session=now.id or "-", model=now.model, effort=now.effort, agent=now.agent,
            mode=now.mode, branch=self._branch, directory=now.view.session.directory,
            cut_off=is_cut_off(now),
        )  # fmt: skip

    async def load(self) -> None:
        """Load earlier events. The session's facts come first: they empty the screen."""
        self._branch = await anyio.to_thread.run_sync(
            lambda: self._session.workspace.branch
        )
        self._post(FactsChanged(self.facts()))
        history = await self._session.reports.history()
        entries = history.entries  # decoded when they are read: the newest are shown first
        self._seen = len(entries)
        if len(entries) < _LONG_SESSION_EVENTS:
            self._post(News(tuple(Frame(entry.seq, 0, entry) for entry in entries)))
            return
        if turns := _last_turns(entries):
            self._post(Loaded(replace(screen_of(turns), view=self._session.view)))
        self._post(Loaded(await anyio.to_thread.run_sync(screen_of, entries)))

    async def _post_frames(self, watch: Subscription) -> None:
        async for frame in watch.merge_frames():
            if frame.seq < self._seen or (
                isinstance(frame.item, Entry) and frame.seq == self._seen
            ):
                continue  # loaded already
            self._post(News((frame,)))
            if isinstance(frame.item, Entry):
                self._seen = frame.seq
                if not self._session.view.turn.seq:
                    self._branch = self._session.workspace.branch
                self._post(FactsChanged(self.facts()))
                self._wake_waiters()
                self._reload_watched(frame.item)
            elif isinstance(frame.item, ChildMoved) and frame.item.node == self._watched:
                self._moved.set()

    def _reload_watched(self, entry: Entry) -> None:
        """Load the watched subagent again when it asks, is answered, or does something."""
        match entry.event:
            case ChildAsked(id_) | ChildAnswered(id_) if id_.startswith(
                f"{self._watched}/"
            ):
                self._moved.set()
                self._follows = True
            case ChildEnded(self._watched):
                self._moved.set()
            case _:
                pass

    def _on_event(self, entry: Entry) -> None:
        if notice := notification(entry, self._session.view):
            self._display.notify(notice)
        self._asker.on_event(entry)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _run_turns(self) -> None:
        """Run turns whenever there is work."""
        session = self._session
        await self.may_work.wait()
        while True:
            seq, ran = session.view.seq, bool(session.view.turn.seq)
            try:
                await session.settle()
            except RefoldError as error:
                self._display.print_row(sentence(error))
            if (ran or session.view.seq > seq) and not session.view.turn.seq:
                self._display.ring("it is done")
                self._display.run_delayed()
            await self._wait_for_event_or_order(seq)

    async def _wait_for_event_or_order(self, seq: int) -> None:
        """Wait for an event after this one, or for an order that causes no event."""
        async with anyio.create_task_group() as group:

            async def event() -> None:
                await self._session.wait_for_change(after=seq)
                group.cancel_scope.cancel()

            group.start_soon(event)
            await self._ordered.wait()
            self._ordered = anyio.Event()
            group.cancel_scope.cancel()

    async def _put_questions(self) -> None:
        while True:
            if (request := self._asker.next_question()) is None:
                await self._news.wait()
                continue
            with anyio.move_on_after(_GROUPING_SECONDS):
                while self._asker.has_undecided_calls:
                    await self._news.wait()
            request = self._asker.next_question() or request
            self._display.ring("a question for you")
            try:
                await self._asker.put_question(request)
            except RefoldError as error:  # the answer could not be written to the disk
                self._display.print_row(sentence(error))
            finally:
                self._reader.erase_question()

    async def _send_draft(self, draft: DraftMessage) -> None:
        """Send words that amend an answer. The screen sends drafts itself."""
        await self._session.say(draft.words)

    async def _ask_about_plans(self) -> None:
        while True:
            plan = self._display.plans.next_plan(self._session)
            if plan is None or self._session.view.turn.seq:
                await self._news.wait()
                continue
            self._display.ring("a plan for you")
            try:
                if not await plans.ask_about_plan(
                    plan, self._session, self._printer, self._reader
                ):
                    self._display.plans.postpone(plan)
            except RefoldError as error:
                self._display.print_row(sentence(error))
            finally:
                self._reader.erase_question()

    async def _load_watched(self) -> None:
        """Load the watched subagent after its events, or the watched command while it runs."""
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            if not (name := self._watched):
                continue
            command = self._session.view.background.command(name)
            try:
                loaded = await (
                    self._load_transcript(name)
                    if command is None
                    else self._load_output(command)
                )
            except RefoldError as error:
                self._display.print_row(sentence(error))
                continue
            if name == self._watched:  # otherwise another one is watched by now
                self._post(loaded)
            await anyio.sleep(_POLL_SECONDS)
            if (command is not None and command.runs) or self._follows:
                self._follows = False
                self._moved.set()

    async def _load_transcript(self, address: str) -> TranscriptLoaded:
        node = await self._session.reports.node(address)
        frames = tuple(Frame(entry.seq, 0, entry) for entry in node.entries)
        title = f"{escape_to_one_line(node.name)} ({escape_to_one_line(node.view.session.agent)})"
        return TranscriptLoaded(address, title, frames)

    async def _load_output(self, command: BackgroundCommand) -> OutputLoaded:
        name = command.name
        text = await self._session.reports.background_output(name)
        return OutputLoaded(
            name, f"{name}: {escape_to_one_line(command.started.command)}", text
        )

    async def _load_panel(self) -> None:
        """Read the content of the open panel that comes from no event, while it is open."""
        while True:
            await self._opened.wait()
            self._opened = anyio.Event()
            board, shown = self._session.workspace.tasks, None
            while panel := self._panel:
                reading = (
                    partial(_read_board, board)
                    if panel == "tasks"
                    else self._read_last_lines
                )
                if (content := await reading()) != shown and panel == self._panel:
                    shown = content
                    self._post(content)
                with anyio.move_on_after(_POLL_SECONDS):
                    await self._opened.wait()

    async def _read_last_lines(self) -> OutputsRead:
        """Return the last output line of each command that runs in this process."""
        lines = dict[str, str]()
        for command in self._session.view.background.running:
            with suppress(RefoldError):
                text = await self._session.reports.background_output(
                    command.name, _MAX_LAST_LINE_BYTES
                )
                lines[command.name] = last_line(text)
        return OutputsRead(
            lines, time.time() if self._session.view.background.running else 0.0
        )


def _last_turns(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the newest events from the start of a turn; none if the turn is too long."""
    newest = entries[-_MAX_TAIL_EVENTS:]
    begins = (
        index
        for index, entry in enumerate(newest)
        if isinstance(entry.event, events.TurnStarted)
    )
    return newest[next(begins, len(newest)) :]


async def _read_board(board: TaskBoard) -> BoardRead:
    try:
        return BoardRead((await anyio.to_thread.run_sync(board.read)).tasks)
    except RefoldError as error:
        return BoardRead(problem=str(error))
