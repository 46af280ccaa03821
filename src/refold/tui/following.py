"""Follows the session on the screen: its events, its turns and its questions.

Events become messages for `update`. Turns run until nothing is left to do. Questions and plans
are shown one after the other, as in the line terminal.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
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

# seconds for which a question waits for others of the same response
_GROUPING_SECONDS = 0.3
# seconds between two reads of a watched command or of a panel's content
_POLL_SECONDS = 1.0
# If a session has more events, its end is shown before all of it is folded.
_LONG_SESSION_EVENTS = 2_000
_MAX_TAIL_EVENTS = 400  # events of the end that is shown first
# the part of the output in which a command's last line is searched
_MAX_LAST_LINE_BYTES = 4_000


class Display(Protocol):
    """Shows a session. The runtime of the full screen implements it."""

    @property
    def plans(self) -> plans.PlanQueue:
        """The queue from which plans to ask about are taken."""
        ...

    def post(self, message: Message) -> None:
        """Update the state of the screen by a message."""
        ...

    def print_row(self, row: Line) -> None:
        """Print a row at the end of the transcript."""
        ...

    def ring(self, reason: str) -> None:
        """Notify the user, who may be looking elsewhere. `reason` says why."""
        ...

    def notify(self, text: str) -> None:
        """Show a notification that the model requests."""
        ...

    def run_delayed(self) -> None:
        """Run the commands that waited for the end of the turn. They may open another session."""
        ...


class SessionFollower:
    """Follows one session. `printer` and `reader` show its questions and read the answers."""

    def __init__(
        self, session: Session, display: Display, printer: Printer, reader: ScreenReader
    ) -> None:
        self._session, self._display, self._post = session, display, display.post
        self._printer, self._reader = printer, reader
        self._asker = Asker(session, printer, reader, self._send_draft)
        self._watch = session.watch()  # buffers events while earlier ones are loaded
        self._news = anyio.Event()
        self.may_work = anyio.Event()  # set when turns may run
        self._order_came = anyio.Event()
        self._seen = 0  # the number of the last event that was posted
        self._branch = ""
        self._watched = ""  # the subagent or command that is shown
        self._watched_changed = anyio.Event()
        # whether the watched subagent is loaded once more without an event
        self._loads_again = False
        # the open panel whose content does not come from events
        self._panel: PanelName = ""
        self._panel_changed = anyio.Event()

    async def run(self, scope: anyio.CancelScope) -> None:
        """Follow the session until `scope` is cancelled."""
        watch = self._watch
        stop_listening = self._session.on_event(self._on_event)
        try:
            with scope:
                async with anyio.create_task_group() as group:
                    for task in (
                        self._run_turns, self._put_questions, self._ask_about_plans, self._load_watched, self._load_panel,
                    ):  # fmt: skip
                        group.start_soon(task)
                    await self._post_frames(watch)
        finally:
            stop_listening()
            watch.close()

    def wake_turn_loop(self) -> None:
        """Wake the turn loop, because this or another client has given an order."""
        self.may_work.set()
        self._order_came.set()

    def watch(self, command: messages.Watch | messages.Follow) -> None:
        """Load this subagent, background command or panel whenever it changes.

        Questions of the watched subagent are asked before others.
        """
        match command:
            case messages.Watch(node):
                self._watched = node
                self._watched_changed.set()
                self._asker.prefer_subagent(node)
            case messages.Follow(panel):
                self._panel = panel
                self._panel_changed.set()

    def facts(self) -> Facts:
        session = self._session
        return Facts(
            session=session.id or "-", model=session.model, effort=session.effort, agent=session.agent,
            mode=session.mode, branch=self._branch, directory=session.view.session.directory,
            cut_off=is_cut_off(session),
        )  # fmt: skip

    async def load(self) -> None:
        """Post the facts about the session, which clear the screen, and then its events so far."""
        self._branch = await anyio.to_thread.run_sync(
            lambda: self._session.workspace.branch
        )
        self._post(FactsChanged(self.facts()))
        history = await self._session.reports.history()
        # each entry is decoded when it is read, so the newest can be shown first
        entries = history.entries
        self._seen = len(entries)
        if len(entries) < _LONG_SESSION_EVENTS:
            self._post(News(tuple(Frame(entry.seq, 0, entry) for entry in entries)))
            return
        if turns := _last_turns(entries):
            self._post(Loaded(replace(screen_of(turns), view=self._session.view)))
        self._post(Loaded(await anyio.to_thread.run_sync(screen_of, entries)))

    async def _post_frames(self, watch: Subscription) -> None:
        """Post events and live news, without events that were loaded before."""
        async for frame in watch.merge_frames():
            last_loaded = self._seen
            if not isinstance(frame.item, Entry):
                last_loaded -= 1  # live news has the number of the event before it
            if frame.seq <= last_loaded:
                continue
            self._post(News((frame,)))
            if isinstance(frame.item, Entry):
                self._seen = frame.seq
                if not self._session.view.turn.seq:
                    self._branch = self._session.workspace.branch
                self._post(FactsChanged(self.facts()))
                self._wake_waiters()
                self._reload_watched(frame.item)
            elif isinstance(frame.item, ChildMoved) and frame.item.node == self._watched:
                self._watched_changed.set()

    def _reload_watched(self, entry: Entry) -> None:
        """Load the watched subagent again, if it has asked, was answered, or has ended."""
        match entry.event:
            case ChildAsked(id_) | ChildAnswered(id_) if id_.startswith(
                f"{self._watched}/"
            ):
                self._watched_changed.set()
                self._loads_again = True
            case ChildEnded(self._watched):
                self._watched_changed.set()
            case _:
                pass

    def _on_event(self, entry: Entry) -> None:
        """Handle an event at once: show its notification, and end a question that it answers."""
        if notice := notification(entry, self._session.view):
            self._display.notify(notice)
        self._asker.on_event(entry)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _run_turns(self) -> None:
        """Run turns whenever there is work, until cancelled."""
        session = self._session
        await self.may_work.wait()
        while True:
            seq = session.view.seq
            was_running = bool(session.view.turn.seq)
            try:
                await session.settle()
            except RefoldError as error:
                self._display.print_row(sentence(error))
            has_run = was_running or session.view.seq > seq
            if has_run and not session.view.turn.seq:
                self._display.ring("it is done")
                self._display.run_delayed()
            await self._wait_for_event_or_order(seq)

    async def _wait_for_event_or_order(self, seq: int) -> None:
        """Wait for an event after `seq`, or for an order, which may cause no event."""
        async with anyio.create_task_group() as group:

            async def end_at_event() -> None:
                await self._session.wait_for_change(after=seq)
                group.cancel_scope.cancel()

            group.start_soon(end_at_event)
            await self._order_came.wait()
            self._order_came = anyio.Event()
            group.cancel_scope.cancel()

    async def _put_questions(self) -> None:
        """Ask the user each question of the session, one after the other."""
        while True:
            first_request = self._asker.next_question()
            if first_request is None:
                await self._news.wait()
                continue
            with anyio.move_on_after(_GROUPING_SECONDS):
                while self._asker.has_undecided_calls:
                    await self._news.wait()
            # another question may be the next by now
            request = self._asker.next_question() or first_request
            self._display.ring("a question for you")
            try:
                await self._asker.put_question(request)
            except RefoldError as error:  # the answer could not be written to the disk
                self._display.print_row(sentence(error))
            finally:
                self._reader.erase_question()

    async def _send_draft(self, draft: DraftMessage) -> None:
        """Send a message that the user adds to an answer.

        The screen itself sends all other drafts.
        """
        await self._session.say(draft.words)

    async def _ask_about_plans(self) -> None:
        """Until this is cancelled, ask the user about each plan that waits for approval.

        A question is shown only while no turn runs.
        """
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
        """Load the watched subagent whenever it changes, or the watched command while it runs.

        It is loaded at most once in each `_POLL_SECONDS`.
        """
        while True:
            await self._watched_changed.wait()
            self._watched_changed = anyio.Event()
            name = self._watched
            if not name:
                continue
            command = self._session.view.background.command(name)
            try:
                if command is None:
                    loaded = await self._load_transcript(name)
                else:
                    loaded = await self._load_output(command)
            except RefoldError as error:
                self._display.print_row(sentence(error))
                continue
            if name == self._watched:  # another one may be watched by now
                self._post(loaded)
            await anyio.sleep(_POLL_SECONDS)
            if (command is not None and command.runs) or self._loads_again:
                self._loads_again = False
                self._watched_changed.set()

    async def _load_transcript(self, address: str) -> TranscriptLoaded:
        node = await self._session.reports.node(address)
        frames = tuple(Frame(entry.seq, 0, entry) for entry in node.entries)  # 0: no delta
        title = f"{escape_to_one_line(node.name)} ({escape_to_one_line(node.view.session.agent)})"
        return TranscriptLoaded(address, title, frames)

    async def _load_output(self, command: BackgroundCommand) -> OutputLoaded:
        name = command.name
        text = await self._session.reports.background_output(name)
        return OutputLoaded(
            name, f"{name}: {escape_to_one_line(command.started.command)}", text
        )

    async def _load_panel(self) -> None:
        """Read the content of the open panel repeatedly, if it does not come from events."""
        while True:
            await self._panel_changed.wait()
            self._panel_changed = anyio.Event()
            board = self._session.workspace.tasks
            last_content: BoardRead | OutputsRead | None = None
            while panel := self._panel:
                if panel == "tasks":
                    content = await _read_board(board)
                else:
                    content = await self._read_last_lines()
                # Meanwhile another panel may have been opened.
                if content != last_content and panel == self._panel:
                    last_content = content
                    self._post(content)
                with anyio.move_on_after(_POLL_SECONDS):
                    await self._panel_changed.wait()

    async def _read_last_lines(self) -> OutputsRead:
        """Return the last output line of each background command that runs."""
        lines = dict[str, str]()
        for command in self._session.view.background.running:
            with suppress(RefoldError):
                text = await self._session.reports.background_output(
                    command.name, _MAX_LAST_LINE_BYTES
                )
                lines[command.name] = last_line(text)
        is_running = bool(self._session.view.background.running)
        return OutputsRead(lines, now=time.time() if is_running else 0.0)


def _last_turns(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the newest events, from the start of a turn on.

    Return () if no turn starts within the last `_MAX_TAIL_EVENTS` events.
    """
    newest = entries[-_MAX_TAIL_EVENTS:]
    for index, entry in enumerate(newest):
        if isinstance(entry.event, events.TurnStarted):
            return newest[index:]
    return ()


async def _read_board(board: TaskBoard) -> BoardRead:
    """Return the tasks of the board, or the reason why it cannot be read."""
    try:
        return BoardRead((await anyio.to_thread.run_sync(board.read)).tasks)
    except RefoldError as error:
        return BoardRead(problem=str(error))
