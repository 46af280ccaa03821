"""What a program at stdin orders, done: words, verdicts, answers, modes, stops.

Everything goes to the session's inbox. An order that cannot be obeyed raises
`BadInput`; who says so to the program is `stdio`'s business.
"""

from collections import deque
from collections.abc import Sequence

from anyio import CancelScope

from refold.agents.choosing import choose
from refold.cli.attached import attached
from refold.cli.out import complain
from refold.cli.pipes.orders import (
    ApprovalResponse,
    Cancel,
    CompactTalk,
    Continue,
    Interrupt,
    Order,
    PlanApproval,
    QuestionResponse,
    Queue,
    SetAgent,
    SetBudget,
    SetMode,
    Steer,
    StopChild,
    UserMessage,
)
from refold.cli.rights.grants import offered
from refold.errors import BadInput
from refold.hall.app import App
from refold.journal.below import ChildAsks
from refold.journal.events import Ended, Entry, Judged
from refold.journal.frame import Frame
from refold.session.requests import (
    Permission,
    Questions,
    of_call,
    of_child,
    plan_id,
    requests,
)
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.values.budget import Budget
from refold.values.control import PlanReady
from refold.values.rights import MODES
from refold.views.stream import (
    Document,
    PutToPerson,
    approval_request,
    documents,
    question,
)

NO_CHILD = "no child is at work"


class Desk:
    """What whoever runs the turns has to see to: `mail`, each a turn of its own; `going_on`,
    set by an order to continue; `shorter`, to be done between two turns. `beside` is the
    scope of that while it is done.
    """

    def __init__(self, app: App, session: Session) -> None:
        self.mail: deque[UserMessage] = deque()
        self.going_on = False
        self.shorter: CompactTalk | None = None
        self.beside: CancelScope | None = None
        self._app, self._session = app, session
        # Of each call that waits, the hash it was told with.
        self._told: dict[str, str] = {}

    async def obey(self, order: Order) -> None:
        match order:
            case UserMessage(text) | Steer(text) | Queue(text) if not text.strip():
                raise BadInput("there are no words in it")
            case ApprovalResponse():
                await self._verdict(order)
            case QuestionResponse():
                await self._answers(order)
            case PlanApproval():
                await self._judge(order)
            case UserMessage(when="now") if self._session.view.turn.seq:
                await self.say(order)
            case UserMessage():
                self.mail.append(order)
            case Steer(text, key):
                await self.say(UserMessage(text, key, "now"))
            case Queue(text, key):
                await self.say(UserMessage(text, key, "next"))
            case CompactTalk() | SetBudget() | SetAgent() | StopChild():
                await self._set(order)
            case _:
                await self._steer(order)

    async def say(self, order: UserMessage, shown: Sequence[Picture] = ()) -> None:
        named, problems = attached(
            order.text, self._session.view.about.directory, self._app.unread
        )
        for problem in problems:
            complain(problem)
        await self._session.inbox.say(
            order.text,
            when=order.when,
            client_key=order.client_key,
            pictures=(*shown, *named),
        )

    def put(self) -> Sequence[Permission | Questions]:
        """The calls that wait for a verdict or an answer, and no plan."""
        found = requests(self._session.view)
        return [each for each in found if isinstance(each, Permission | Questions)]

    async def waiting(self) -> Sequence[Document]:
        """What waits already, told as it was when it came up; its numbers are those."""
        wanted = {each.id for each in requests(self._session.view)}
        if not wanted:
            return ()
        entries = await self._session.record.entries()
        newest = {id_: e for e in entries if (id_ := _id_of(e)) in wanted}
        return [self._again(each) for each in newest.values()]

    def _again(self, entry: Entry) -> Document:
        told = documents(Frame(entry.seq, 0, entry), live=False, asked=self.request)
        *_, last = told  # a plan stands behind the result of the call that wrote it
        return last

    async def deny_all(self, reason: str) -> None:
        """No to every call that waits; a plan can still be judged in another start."""
        for found in self.put():
            await self._session.inbox.answer(found.id, allowed=False, reason=reason)

    def request(self, event: PutToPerson) -> Document:
        """The document about a call that is asked about."""
        found = self._put(event)
        if found is None:  # it was over before this could be said
            return approval_request(event)
        self._told[found.id] = event.hash
        if isinstance(found, Questions):
            return question(event, found.questions)
        return approval_request(
            event, self._session.as_made(found.call.call), self._offer(found)
        )

    def _put(self, event: PutToPerson) -> Permission | Questions | None:
        if isinstance(event, ChildAsks):
            return of_child(event)
        found = self._session.view.talk.call(event.call_id)
        return None if found is None else of_call(found)

    async def _steer(self, order: SetMode | Interrupt | Cancel | Continue) -> None:
        inbox = self._session.inbox
        match order:
            case SetMode(mode):
                if (found := MODES.get(mode)) is None:
                    raise BadInput(f"{mode!r} is no mode: {', '.join(MODES)}")
                await inbox.set_mode(found)
            case Interrupt() | Cancel() if self.beside is not None:
                self.beside.cancel()
            case Interrupt(instead):
                if not await inbox.interrupt(instead=instead) and instead:
                    await inbox.say(instead, when="next")
            case Cancel():
                await inbox.cancel()
            case Continue():
                if not self._session.idle or self.mail:
                    raise BadInput("a turn is under way already")
                if not self._session.view.talk.messages:
                    raise BadInput("there is nothing to go on with yet")
                self.going_on = True

    async def _set(self, order: CompactTalk | SetBudget | SetAgent | StopChild) -> None:
        session = self._session
        match order:
            case CompactTalk() if not session.view.talk.messages:
                raise BadInput("nothing has been said that could be told shorter")
            case CompactTalk(kind, focus) if session.view.turn.seq:
                await session.inbox.compact(kind, focus)
            case CompactTalk():  # between two turns, by who looks after those
                self.shorter = order
            case SetBudget(dollars, tokens, calls, seconds):
                await session.inbox.set_budget(Budget(dollars, tokens, calls, seconds))
            case SetAgent(agent):
                await choose(session.inbox, self._app.agents, agent)
            case StopChild(child):
                if not await session.inbox.stop_child(child):
                    raise BadInput(f"no child {child!r} is at work" if child else NO_CHILD)

    async def _verdict(self, order: ApprovalResponse) -> None:
        found = self._waiting(order.call_id, order.hash)
        if isinstance(found, Questions) and order.allowed:
            raise BadInput(f"{order.call_id!r} asks questions: say question_response")
        rule = self._granted(order, found) if order.allowed and order.grant else ""
        taken = await self._session.inbox.answer(
            order.call_id,
            allowed=order.allowed,
            reason=order.reason,
            grant=rule,
            hash_=found.call.hash,
        )
        if not taken:
            raise BadInput(f"the call {order.call_id!r} was answered already")
        if rule and order.grant == "always":  # the yes has counted by now
            self._app.workspace.always(rule)

    async def _answers(self, order: QuestionResponse) -> None:
        found = self._waiting(order.call_id, order.hash)
        if not isinstance(found, Questions):
            raise BadInput(
                f"{order.call_id!r} asks no questions: say tool_approval_response"
            )
        given, questions = len(order.answers), len(found.questions)
        if given > questions:
            there = "is 1 question" if questions == 1 else f"are {questions} questions"
            raise BadInput(f"there {there}, and {given} answers were given")
        taken = await self._session.inbox.answer(
            order.call_id, allowed=True, answers=order.answers, hash_=found.call.hash
        )
        if not taken:
            raise BadInput(f"the questions {order.call_id!r} were answered already")

    async def _judge(self, order: PlanApproval) -> None:
        inbox = self._session.inbox
        if order.approved:
            taken = await inbox.approve_plan(order.plan, text=order.text)
        else:
            taken = await inbox.reject_plan(order.plan, feedback=order.feedback)
        if not taken:
            raise BadInput(f"no plan {order.plan} waits to be judged")

    def _waiting(self, call_id: str, hash_: str) -> Permission | Questions:
        for found in self.put():
            if found.id == call_id:
                # Whoever gives no hash answers what they were told last.
                known = hash_ or self._told.get(call_id, "")
                if not known:
                    raise BadInput(
                        f"the call {call_id!r} was not put to you yet: wait for its request"
                    )
                if known != found.call.hash:
                    raise BadInput(
                        f"the call {call_id!r} is not what it was under that hash: "
                        "look at its newest request"
                    )
                return found
        raise BadInput(f"no call {call_id!r} waits for an answer")

    def _granted(self, order: ApprovalResponse, found: Permission | Questions) -> str:
        """The rule that goes with this yes: the one that was offered, and no other."""
        rule = self._offer(found)
        if not rule:
            raise BadInput(f"no rule can cover {order.call_id!r}: allow it without a grant")
        if order.grant not in ("session", "always", rule):
            raise BadInput(
                f"{order.grant!r} was not offered for {order.call_id!r}: say session, "
                f"always or {rule!r}"
            )
        return rule

    def _offer(self, found: Permission | Questions) -> str:
        made = self._session.as_made(found.call.call)
        tool = next((t for t in self._app.tools if t.spec.name == made.name), None)
        return offered(found.call, made, tool, self._app, self._session.view)


def _id_of(entry: Entry) -> str:
    """What is asked for by this event, as `requests` names it; "": nothing is."""
    match entry.event:
        case ChildAsks(id_) | Judged(id_, "ask"):
            return id_
        case Ended(control=PlanReady()):
            return plan_id(entry.seq)
        case _:
            return ""
