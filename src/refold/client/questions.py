"""Calls that wait for the user's decision, as a program sees and answers them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from refold.errors import BadInput
from refold.session.pending_requests import PlanToJudge, Questions, requests
from refold.session.session import Session
from refold.values.display import AskedQuestion
from refold.values.messages import ToolCall


class Question(Struct, frozen=True):
    """A call that waits for the user. `reason` says why.

    `asks` are the questions of the model, if the call asks some: the reply has an answer to
    each. With `once`, the rules permit only an approval of this one call.
    """

    call_id: str
    tool: str
    arguments: Any
    reason: str
    asks: tuple[AskedQuestion, ...] = ()
    once: bool = False
    # Hash of everything that the question shows; an answer with another hash is rejected.
    hash: str = ""
    who: str = ""  # the subagent that asks, with its agent name; "": the session itself


Approve = Callable[[Question], Awaitable[bool | str | Sequence[str]]]


def questions(session: Session) -> tuple[Question, ...]:
    """Return the calls that wait for the user, oldest first. Plans are not calls."""
    waiting = list[Question]()
    for request in requests(session.view):
        if isinstance(request, PlanToJudge):
            continue
        open_call = request.call
        asks = tuple(request.questions) if isinstance(request, Questions) else ()
        question = Question(
            call_id=request.id,
            tool=open_call.call.name,
            arguments=session.unmasked_call(open_call.call).plain_arguments,
            reason=open_call.reason,
            asks=asks,
            once=open_call.once,
            hash=open_call.hash,
            who=request.who,
        )
        waiting.append(question)
    return tuple(waiting)


def denial_question(call: ToolCall, reason: str) -> Question:
    """Return a refused call and the reason of the refusal, in the form of a question."""
    return Question(
        call_id=call.id, tool=call.name, arguments=call.plain_arguments, reason=reason
    )


async def answer_all(session: Session, approve: Approve) -> None:
    """Pass every question to `approve` and send its answer, until this task is
    cancelled.
    """
    asked: set[tuple[str, str]] = set()
    while True:
        seq = session.view.seq  # read first: events that come while `approve` runs count
        for question in questions(session):
            # If the paths of a call lead elsewhere by now, its hash differs, and it is a
            # new question.
            key = question.call_id, question.hash
            if key in asked:
                continue
            asked.add(key)
            answer = await approve(question)
            await _send_answer(session, question, answer)
        await session.record.wait_for_event(after=seq)


async def _send_answer(
    session: Session, question: Question, answer: bool | str | Sequence[str]
) -> None:
    """Send the answer to a question. Raises `BadInput` if it has the wrong type."""
    id_, hash_ = question.call_id, question.hash
    match answer:
        case str() | bool():
            reason = answer if isinstance(answer, str) else ""
            await session.inbox.answer(
                id_, allowed=answer is True, reason=reason, hash_=hash_
            )
        case list() | tuple() if question.asks:
            await session.inbox.answer(id_, allowed=True, answers=answer, hash_=hash_)
        case _:
            raise BadInput(
                f"`approve` said {answer!r} about a call of {question.tool}: it has to be "
                "True, False or a reason why not, or a list of answers to `question.asks`"
            )
