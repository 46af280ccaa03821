"""One open session with several clients: each sends orders, and each gets all documents.

Orders arrive as JSON, documents leave as frames of the `feed`. The first answer to a
question wins, and the other clients learn it from its document. `wake` notifies the code
that runs the turns (`host`, or a terminal) of new work. `server` transports the bytes.
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

# Orders after which a turn that was cut off is finished.
_GO_ON = (
    SendMessage, Steer, Queue, ApprovalResponse, QuestionResponse, PlanApproval, Interrupt,
    Cancel, Continue,
)  # fmt: skip
_WIDENING_ORDERS = (ApprovalResponse, SetMode)  # may allow what waits for an answer
_ITS_OWN = "this session is open in a terminal: change its directory there"
_NO_HASH = "give the hash of the request that you answer: a newer one may exist"


class SharedSession:
    """`wake` is called when `session.step` may have work. The directory of a session that is
    open `in_terminal` can only be changed there.

    `cut_off`: the process that ran its turn has ended. A message, an answer or `continue`
    finishes the turn; reading the session does not.
    """

    def __init__(
        self, session: Session, wake: Callable[[], None], *, in_terminal: bool = False
    ) -> None:
        self.session, self._wake, self._in_terminal = session, wake, in_terminal
        # If a request waits, the terminal shows it, too: that turn was not cut off.
        asks = in_terminal and bool(session.requests)
        self.cut_off = bool(session.view.turn.seq) and not (session.running or asks)
        self._instructions: ChangedInstructions | None = None
        self._stop = (0, "")  # why its turn has stopped, and after which event
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
        """Why the open turn has stopped; "" again as soon as it continues."""
        seq, reason = self._stop
        return reason if seq == self.session.view.seq else ""

    def report_problem(self, error: RefoldError) -> None:
        """Tell all clients why the turn has stopped. The next order tries again."""
        self._stop = (self.session.view.seq, str(error))
        self.feed.broadcast(problem(error))
        self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def join(
        self, after: Cursor | Newest | None, *, reads_journal: bool = False
    ) -> Follower:
        """A follower that gets what follows `after`; None: a snapshot and what follows it.

        `Newest`: it gets the newest events, and then what follows.
        """
        follower = Follower(reads_journal=reads_journal)
        await self._read_instructions()
        await self.feed.join(follower, after)
        return follower

    def leave(self, follower: Follower) -> None:
        self.feed.leave(follower)

    async def receive(self, data: bytes, follower: Follower) -> None:
        """Carry out an order. Documents for its sender alone go to `follower`."""
        key = ""
        try:
            order = parse_order(data)
            key = order.client_key
            with acting_as(acting_person() or order.by):  # a known person comes first
                changed = await self.execute(order, follower)
        except RefoldError as error:
            _queue_document(follower, problem(error, key))
            return
        if key:  # after the documents of what it changed
            await self.feed.wait_until_sent(self.session.view.seq)
            _queue_document(follower, OrderTaken(client_key=key, changed=changed))

    async def execute(self, order: Order, follower: Follower) -> bool:
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
                asks = isinstance(order, ReportStatus)
                report = self.status() if asks else self._snapshot()
                _queue_document(follower, replace(report, conversation=session.id))
                return True
            case Continue() if self.cut_off or self.problem:
                changed = True
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
        if isinstance(order, _WIDENING_ORDERS):
            await self._answer_allowed_requests()
        if isinstance(order, _GO_ON):
            self.cut_off = False
        self._wake()

    def continue_turn(self) -> None:
        """Finish a turn that was cut off, and carry out the orders."""
        self.cut_off = False
        self._wake()

    def _snapshot(self) -> Snapshot:
        return replace(self.session.snapshot, status=self.status())

    async def _answer_allowed_requests(self) -> None:
        """Allow the waiting calls that a rule or the mode now allows."""
        for request in self.session.requests:
            if isinstance(request, PlanToJudge):
                continue
            if self.session.permissions.runs_unasked(request):
                await self.session.answer(request, True)

    async def _ask_about_instructions(self) -> None:
        """Send all clients the question about instructions, if it changed."""
        before = self._instructions
        await self._read_instructions()
        if self._instructions != before:
            self.feed.broadcast(replace(self.status(), conversation=self.session.id))

    async def _read_instructions(self) -> None:
        with suppress(BadInput):  # of a damaged record the notices tell
            self._instructions = await self.session.find_changed_instructions()

    async def _record_message(self, order: SendMessage) -> bool:
        """Record a message at once: an acknowledged message survives a crash."""
        named = self.session.workspace.images_in(order.text)
        new = (image for image in named.images if image not in order.images)
        images = (*order.images, *new)
        if named.problems:
            raise BadInput("; ".join(named.problems))
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
    """The document about an error, for the client that caused it."""
    message = Error(kind=type(error).__name__, reason=str(error))
    return replace(message, client_key=client_key) if client_key else message


def _queue_document(follower: Follower, document: Document) -> None:
    follower.queue_document(msgspec.json.encode(document))
