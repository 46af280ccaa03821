"""What a program may say to a session over stdin: one JSON object a line. Pure.

Each type stands in docs/headless.md; a test compares the two. What is done with
an order is `stdio`'s business.
"""

import json
import re
from codecs import BOM_UTF8
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct

from refold.errors import BadInput, said_by
from refold.values.clean import clean
from refold.values.control import Shorter

_AboveZero: TypeAlias = Annotated[float, Meta(gt=0)]
_Counted: TypeAlias = Annotated[int, Meta(ge=1)]


class _Order(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """A slip in the name of a field is an error, and not a field that says nothing."""


class UserMessage(_Order, frozen=True, tag="user_message"):
    """Words for the model: a turn of their own, or, `now`, for the one under way."""

    text: str
    client_key: str = ""  # the same key twice is the same message sent twice
    when: Literal["next", "now"] = "next"


class Steer(_Order, frozen=True, tag="steer"):
    """Words into the turn under way, at its next step; a turn of their own if none is."""

    text: str
    client_key: str = ""


class Queue(_Order, frozen=True, tag="queue"):
    """Words for after the turn under way, kept at once; all that wait are one turn."""

    text: str
    client_key: str = ""


class CompactTalk(_Order, frozen=True, tag="compact"):
    kind: Shorter = "full"
    focus: str = ""  # what must not get lost


class SetBudget(_Order, frozen=True, tag="budget"):
    """What a turn may use up, whole: what is not given has no limit."""

    dollars: _AboveZero | None = None
    tokens: _Counted | None = None
    calls: _Counted | None = None
    seconds: _AboveZero | None = None


class SetAgent(_Order, frozen=True, tag="set_agent"):
    agent: str


class ApprovalResponse(_Order, frozen=True, tag="tool_approval_response"):
    """With `hash`, the verdict is on what was shown under it, and on nothing else."""

    call_id: str
    allowed: bool
    hash: str = ""
    reason: str = ""
    grant: str = ""  # "session" or "always": the rule that was offered; or another rule


class QuestionResponse(_Order, frozen=True, tag="question_response"):
    call_id: str
    answers: tuple[str, ...]
    hash: str = ""


class PlanApproval(_Order, frozen=True, tag="plan_approval"):
    """`text` is the plan as it was edited; `feedback` says what to revise."""

    plan: int
    approved: bool
    text: str = ""
    feedback: str = ""


class SetMode(_Order, frozen=True, tag="set_mode"):
    mode: str


class Interrupt(_Order, frozen=True, tag="interrupt"):
    instead: str = ""  # what the model should hear next


class Cancel(_Order, frozen=True, tag="cancel"):
    """Stop the turn, as a program does."""


class Continue(_Order, frozen=True, tag="continue"):
    """Go on where the last turn ended, without new words."""


class StopChild(_Order, frozen=True, tag="stop_child"):
    """End a child, and all below it; without a name, all of them. The turn goes on."""

    child: str = ""


class _Block(Struct, frozen=True):
    type: str
    text: str = ""


class _Message(Struct, frozen=True):
    content: str | list[_Block]
    role: str = "user"


class User(Struct, frozen=True, tag_field="type", tag="user"):
    """Words as programs send them that were written for another agent."""

    message: _Message


_NONE_OF = re.compile(r"Invalid (?:enum )?value '(.*)' - at `\$\.(\w+)`")
Order: TypeAlias = (
    UserMessage | ApprovalResponse | QuestionResponse | PlanApproval
    | SetMode | Interrupt | Cancel | Continue
    | Steer | Queue | CompactTalk | SetBudget | SetAgent | StopChild
)  # fmt: skip
KINDS: tuple[type[Struct], ...] = (*get_args(Order), User)
_TYPES = tuple(str(each.__struct_config__.tag) for each in get_args(Order))


def order_in(line: bytes) -> Order:
    """The order that stands in this line. Raises `BadInput` that says what is wrong."""
    try:
        found = msgspec.json.decode(_whole(line.removeprefix(BOM_UTF8)), type=Order | User)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is no order: {_in_words(said_by(error))}") from error
    return _as_ours(found.message) if isinstance(found, User) else found


def _in_words(problem: str) -> str:
    """What msgspec says, and what could stand there instead."""
    found = _NONE_OF.search(problem)
    if found is None:
        return problem
    there = (
        _TYPES if found[2] == "type" else get_args(Shorter) if found[2] == "kind" else ()
    )
    from difflib import get_close_matches

    near = get_close_matches(found[1], there, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(there)}"
    unknown = there and found[1] not in there  # one that there is stands there twice
    return f"there is no {found[2]} {found[1]!r}{hint}" if unknown else problem


def _whole(line: bytes) -> bytes:
    """The line with each half of a character that stands alone as U+FFFD."""
    if b"\\ud" not in line.lower():
        return line
    return clean(json.dumps(json.loads(line), ensure_ascii=False)).encode()


def _as_ours(message: _Message) -> UserMessage:
    if isinstance(message.content, str):
        return UserMessage(message.content)
    if other := next((b.type for b in message.content if b.type != "text"), None):
        raise BadInput(f"a message may hold text only, and not {other!r}")
    return UserMessage("\n\n".join(block.text for block in message.content))
