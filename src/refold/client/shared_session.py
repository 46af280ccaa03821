"""One open session with several clients: each sends orders, and each gets all documents.

Orders arrive as JSON; documents are sent as frames of the `feed`. Only the first answer to
a question counts; the other clients get a document about it. `wake` notifies the code that
runs the turns (`host`, or a terminal) of new work. `server` transports the bytes.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from refold.client.event_documents import Cursor, Newest
from refold.client.feed import Feed, Follower
from refold.client.protocol import (
    ApprovalResponse,
    Cancel,
    Continue,
    Fork,
    InstructionsResponse,
    Interrupt,
    Order,
    PlanApproval,
    QuestionResponse,
    Queue,
    ReportSnapshot,
    ReportStatus,
    SendMessage,
    SetDirectory,
    SetMode,
    Steer,
    parse_order,
)
from refold.client.session import Session
from refold.errors import BadInput, RefoldError
from refold.session.pending_requests import PlanToJudge
from refold.session.recorder import acting_as, acting_person
from refold.views.stream_json.documents import Error, ForkMade, OrderTaken
from refold.views.stream_json.encode import Document
from refold.views.stream_json.snapshot import ChangedInstructions, Snapshot, Status

# Orders that also continue an interrupted turn.
_CONTINUING_ORDERS = (
    SendMessage, Steer, Queue, ApprovalResponse, QuestionResponse, PlanApproval, Interrupt,
    Cancel, Continue,
)  # fmt: skip
_WIDENING_ORDERS = (ApprovalResponse, SetMode)  # may allow calls that wait for an answer
_ITS_OWN = "this session is open in a terminal: change its directory there"
_NO_HASH = "give the hash of the request that you answer: a newer one may exist"


class SharedSession:
    """An open session with clients. `wake` is called when `session.step` may have work.

    If the session is open `in_terminal`, only the terminal can change its directory.
    `cut_off` says that the process that ran the open turn has exited. Reading the session
    does not continue that turn; a message, an answer or the order `continue` does.
    """

    def __init__(
        self, session: Session, wake: Callable[[], None], *, in_terminal: bool = False
    ) -> None:
        self.session = session
        self._wake = wake
        self._in_terminal = in_terminal
        # An open turn is cut off if no process runs it. If the terminal shows its request to
        # the user, it only waits.
        waits_for_user = in_terminal and bool(session.requests)
        has_open_turn = bool(session.view.turn.seq)
        self.cut_off = has_open_turn and not (session.running or waits_for_user)
        self._instructions: ChangedInstructions | None = None
        # The last event before the open turn stopped, and the reason why it stopped.
        self._stop_seq = 0
        self._stop_reason = ""
        self.feed = Feed(session, self.status)

    def status(self) -> Status:
        return replace(
            self.session.status,
            cut_off=self.cut_off,
            problem=self.problem,
            instructions=self._instructions,
        )

    @property
    def problem(self) -> str:
        """The reason why the open turn has stopped; "" as soon as it continues.

        The reason is part of the status and not an event, because a full disk could not store
        an event. A page that is opened later gets the reason, too.
        """
        has_continued = self.session.view.seq != self._stop_seq
        return "" if has_continued else self._stop_reason

    def report_problem(self, error: RefoldError) -> None:
        """Inform all clients why the turn has stopped. The next order tries again."""
        self._stop_seq = self.session.view.seq
        self._stop_reason = str(error)
        self.feed.broadcast(problem(error))
        self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def join(
        self, after: Cursor | Newest | None, *, reads_journal: bool = False
    ) -> Follower:
        """Add a client. The client gets the documents that follow `after`, and then new
        ones.

        If `after` is None, the client gets a snapshot first; if it is `Newest`, the newest
        events.
        """
        follower = Follower(reads_journal=reads_journal)
        await self._read_instructions()
        await self.feed.join(follower, after)
        return follower

    def leave(self, follower: Follower) -> None:
        self.feed.leave(follower)

    async def receive(self, data: bytes, follower: Follower) -> None:
        """Carry out an order that a client has sent as JSON.

        An error and the reply to the order are sent to its `follower` alone.
        """
        key = ""
        try:
            order = parse_order(data)
            key = order.client_key
            # An authenticated person has priority over the one that the order names.
            with acting_as(acting_person() or order.by):
                changed = await self.execute(order, follower)
        except RefoldError as error:
            _queue_document(follower, problem(error, key))
            return
        if key:  # it is sent after the documents of the change
            await self.feed.wait_until_sent(self.session.view.seq)
            _queue_document(follower, OrderTaken(client_key=key, changed=changed))

    async def execute(self, order: Order, follower: Follower) -> bool:
        """Carry out an order. Return False if it had no effect.

        A document that answers the order is sent to its `follower` alone.
        """
        session = self.session
        match order:
            case SendMessage():
                changed = await self._record_message(order)
            case ApprovalResponse(hash="") | QuestionResponse(hash=""):
                raise BadInput(_NO_HASH)
            case Fork(seq):
                forked = await session.fork(seq)
                _queue_document(follower, ForkMade(session_id=forked, source=session.id))
                return True
            case ReportStatus() | ReportSnapshot():
                is_status = isinstance(order, ReportStatus)
                report = self.status() if is_status else self._snapshot()
                _queue_document(follower, replace(report, conversation=session.id))
                return True
            case Continue() if self.cut_off or self.problem:
                changed = True  # `_continue_after` continues the open turn
            case SetDirectory() if self._in_terminal:
                raise BadInput(_ITS_OWN)
            case SetDirectory() | InstructionsResponse():
                try:
                    changed = await session.send(order)
                finally:
                    if isinstance(order, SetDirectory):
                        self.feed.follow_move()
                    await self._ask_about_instructions()
            case _:
                changed = await session.send(order)
        await self._continue_after(order)
        return changed

    async def _continue_after(self, order: Order) -> None:
        """Let the turn continue after this order, if the order permits that."""
        if isinstance(order, _WIDENING_ORDERS):
            await self._answer_allowed_requests()
        if isinstance(order, _CONTINUING_ORDERS):
            self.cut_off = False
        self._wake()

    def continue_turn(self) -> None:
        """Continue an interrupted turn, and carry out the waiting orders."""
        self.cut_off = False
        self._wake()

    def _snapshot(self) -> Snapshot:
        return replace(self.session.snapshot, status=self.status())

    async def _answer_allowed_requests(self) -> None:
        """Allow the waiting calls that a rule or the mode allows by now.

        A terminal applies the rules again before each question, but a page shows all requests
        at once. The engine does not do this itself: a question in a terminal would vanish
        while the user reads it.
        """
        for request in self.session.requests:
            if isinstance(request, PlanToJudge):
                continue
            # This is never true for a request of a subagent: a person must answer it.
            if self.session.permissions.runs_unasked(request):
                await self.session.answer(request, allowed=True)

    async def _ask_about_instructions(self) -> None:
        """Send all clients the question about the folder's instructions, if it has changed."""
        before = self._instructions
        await self._read_instructions()
        if self._instructions != before:
            self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def _read_instructions(self) -> None:
        with suppress(BadInput):  # the notices report a damaged record
            self._instructions = await self.session.find_changed_instructions()

    async def _record_message(self, order: SendMessage) -> bool:
        """Record a message before it is acknowledged, so that it survives a crash.

        Image files that its text names are sent with it. Return False if the message was
        recorded before. Raises `BadInput` if such a file cannot be sent, or if the message is
        empty.
        """
        named_in_text = self.session.workspace.images_in(order.text)
        if named_in_text.problems:
            raise BadInput("; ".join(named_in_text.problems))
        added = (image for image in named_in_text.images if image not in order.images)
        images = (*order.images, *added)
        if not (order.text.strip() or images):
            raise BadInput("it contains no text")
        return await self.session.say(
            order.text,
            when=order.when,
            client_key=order.client_key,
            images=images,
            typed=order.typed,
        )


def problem(error: RefoldError, client_key: str = "") -> Error:
    """Return the document that reports an error to the client that caused it."""
    message = Error(kind=type(error).__name__, reason=str(error))
    return replace(message, client_key=client_key) if client_key else message


def _queue_document(follower: Follower, document: Document) -> None:
    follower.queue_document(msgspec.json.encode(document))
