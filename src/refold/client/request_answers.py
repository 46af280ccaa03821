"""Records answers of the user to a session: permission for a call, questions, or a plan.

`dispatch` passes the orders on; `session.pending_requests` finds what waits for an answer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refold.app.app import App
from refold.client.order_sink import AlreadyAnswered
from refold.client.protocol import ApprovalResponse, PlanApproval, QuestionResponse
from refold.errors import BadInput
from refold.session.pending_requests import Permission, Questions, requests
from refold.session.session import Session as Engine

if TYPE_CHECKING:
    from refold.client.permissions import Permissions


async def answer_permission(app: App, engine: Engine, order: ApprovalResponse) -> bool:
    """Record the answer to a call that waits for permission, and return True.

    Raises `AlreadyAnswered` if another client was first, and `BadInput` for an invalid answer.
    """
    request = _find_request(engine, order.call_id, order.hash)
    if isinstance(request, Questions) and order.allowed:
        raise BadInput(f"{order.call_id!r} asks questions: send question_response")
    rules: Sequence[str] = ()
    if order.allowed and order.grant:
        from refold.client.permissions import Permissions

        rules = _rules_to_grant(Permissions(app, engine), order, request)
    was_taken = await engine.inbox.answer(
        order.call_id,
        allowed=order.allowed,
        reason=order.reason,
        grants=rules,
        hash_=request.call.hash,
    )
    if not was_taken:
        raise AlreadyAnswered(f"the call {order.call_id!r} was answered already")
    # Stored last: if that fails, the call is already allowed.
    if rules and order.grant == "always":
        app.workspace.store_allow_rules(*rules)
    return True


async def answer_questions(engine: Engine, order: QuestionResponse) -> bool:
    """Record the answers to the questions of a call, and return True.

    Raises `AlreadyAnswered` if another client was first, and `BadInput` for invalid answers.
    """
    request = _find_request(engine, order.call_id, order.hash)
    if not isinstance(request, Questions):
        raise BadInput(f"{order.call_id!r} asks no questions: send tool_approval_response")
    question_count, answer_count = len(request.questions), len(order.answers)
    if answer_count > question_count:  # fewer are allowed: the rest stays unanswered
        questions = (
            "is 1 question" if question_count == 1 else f"are {question_count} questions"
        )
        raise BadInput(f"there {questions}, and {answer_count} answers were given")
    was_taken = await engine.inbox.answer(
        order.call_id, allowed=True, answers=order.answers, hash_=request.call.hash
    )
    if not was_taken:
        raise AlreadyAnswered(f"the questions {order.call_id!r} were answered already")
    return True


async def judge_plan(engine: Engine, order: PlanApproval) -> bool:
    """Record the approval or rejection of a plan, and return True.

    Raises `AlreadyAnswered` if no plan waits.
    """
    inbox = engine.inbox
    if order.approved:
        mode = order.mode or None
        was_taken = await inbox.approve_plan(order.plan, text=order.text, mode=mode)
    else:
        was_taken = await inbox.reject_plan(order.plan, feedback=order.feedback)
    if not was_taken:
        # 0 stands for any plan that waits.
        subject = f"no plan {order.plan}" if order.plan else "there is no plan that"
        raise AlreadyAnswered(f"{subject} waits to be judged")
    return True


def _find_request(engine: Engine, call_id: str, hash_: str) -> Permission | Questions:
    """Return the request about the call `call_id`, if `hash_` is its hash.

    The hash shows that the user saw the newest request. Raises `BadInput` for another hash,
    and `AlreadyAnswered` if the request no longer waits.
    """
    for request in requests(engine.view):
        is_about_call = isinstance(request, Permission | Questions)
        if not is_about_call or request.id != call_id:
            continue
        if not hash_:
            raise BadInput(
                f"the call {call_id!r} was not shown to you yet: wait for its request"
            )
        if hash_ != request.call.hash:
            raise BadInput(
                f"the call {call_id!r} has changed since the request with that "
                "hash: answer its newest request"
            )
        return request
    if hash_:  # only a request that was shown has a hash, so another client answered it
        raise AlreadyAnswered(f"no call {call_id!r} waits for an answer any more")
    raise BadInput(f"no call {call_id!r} waits for an answer")


def _rules_to_grant(
    permissions: "Permissions", order: ApprovalResponse, request: Permission | Questions
) -> Sequence[str]:
    """Return the rules that are granted together with this approval.

    They are one of the offered sets, or were typed by the user. Raises `BadInput` for rules
    that do not allow the call.
    """
    offered = permissions.rule_sets(request)
    if not (offered or order.rule or order.rule_set):
        raise BadInput(f"no rule can cover {order.call_id!r}: allow it without a grant")
    if order.rule and order.rule_set:
        raise BadInput("send rule or rule_set, not both")
    if order.rule_set:
        rules = order.rule_set
    elif order.rule:
        rules = (order.rule,)
    elif order.grant in ("session", "always"):
        rules = offered[0]
    else:  # `grant` is a rule
        rules = (order.grant,)
    if rules in offered:
        return rules
    try:
        permissions.check_offer(request, *rules)
    except BadInput as error:
        offered_sets = [" with ".join(map(repr, rule_set)) for rule_set in offered]
        sets_text = ", ".join(offered_sets) or "none"
        raise BadInput(f"{error}; rules for {order.call_id!r}: {sets_text}") from error
    return rules
