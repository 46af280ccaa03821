"""The orders that a client can send to a session: a class for each, a JSON line over stdio.

Each type is in docs/reference/stream.md; a test compares the two. `client.order_sink` says where
orders go; `views.stream_json` has the documents that a session sends.
"""

import re
from codecs import BOM_UTF8
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct

from refold.errors import BadInput, reason_of
from refold.tools.contract import ImageData
from refold.values.control import CompactionKind
from refold.values.json_check import find_repeated_key
from refold.values.modes import Effort, Format
from refold.values.text import clean

_AboveZero: TypeAlias = Annotated[float, Meta(gt=0)]
_Counted: TypeAlias = Annotated[int, Meta(ge=1)]
_Steps: TypeAlias = Annotated[int, Meta(ge=0)]
MAX_NAME_CHARS = 64  # of a person


class _Order(
    Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    """An unknown field is an error, for it may be a mistyped one.

    The same `client_key` twice is the same order sent twice, and done once: a message for
    as long as there is a journal, any other order as long as the process lives.

    `by` is the person who gives it, for a program that serves several; "": the user of the
    process. A server replaces it by the person whom it knows.
    """

    client_key: str = ""
    by: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] = ""


class SendMessage(_Order, frozen=True, tag="user_message"):
    """A message for a turn of its own, or, with `when` "now", for the running turn.

    `images` have `content` (base64), `kind` and `name`; `typed` is what a person wrote of it,
    if not all.
    """

    text: str
    when: Literal["next", "now"] = "next"
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class Steer(_Order, frozen=True, tag="steer"):
    """A message for the running turn, from its next step on; it starts a turn if none runs."""

    text: str
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class Queue(_Order, frozen=True, tag="queue"):
    """A message for after the running turn, recorded at once; all that wait are one turn."""

    text: str
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class ApprovalResponse(_Order, frozen=True, tag="tool_approval_response"):
    """The decision about a call. Without `hash` it answers the newest request.

    `grant` "session" or "always" also allows `rule`, one of the offered `rules` (by default
    the first), or all of `rule_set`, and with it other calls that wait. After
    `limits.answer_seconds` seconds without an answer, the answer is "no".
    """

    call_id: str
    allowed: bool
    hash: str = ""
    reason: str = ""
    grant: str = ""  # "session" or "always"; or a rule that was offered: for the session
    rule: str = ""
    rule_set: tuple[str, ...] = ()


class QuestionResponse(_Order, frozen=True, tag="question_response"):
    """An answer to each question, in their order; "" for none."""

    call_id: str
    answers: tuple[str, ...]
    hash: str = ""


class InstructionsResponse(_Order, frozen=True, tag="instructions_response"):
    """The answer to the `instructions` of a status, which only a server asks.

    `use` the new version, or keep the trusted one.
    """

    hash: str
    use: bool


ModeAfterPlan: TypeAlias = Literal["", "default", "accept-edits"]  # "": the one before it


class PlanApproval(_Order, frozen=True, tag="plan_approval"):
    """If `approved`, the next turn carries out the plan, or `text`, as it was edited.

    That is in `mode`, "default" or "accept-edits"; "" is the mode before the plan. If not,
    `feedback` asks for a better plan.
    """

    plan: int  # 0: the one that waits
    approved: bool
    text: str = ""
    feedback: str = ""
    mode: ModeAfterPlan = ""


class Interrupt(_Order, frozen=True, tag="interrupt"):
    """Stop the turn. `instead` is the next message; `content` is the same."""

    instead: str = ""
    reason: str = "interrupted"
    content: str = ""  # as in `PlainMessage`


class Cancel(_Order, frozen=True, tag="cancel"):
    """Stop the turn, as a program does."""

    reason: str = "cancelled"


class Continue(_Order, frozen=True, tag="continue"):
    """Continue where the last turn ended, without a new message."""


class CompactConversation(_Order, frozen=True, tag="compact"):
    """Compact the conversation. During a turn, at its next step.

    "full" replaces old messages by a summary that preserves `focus`, "prune" removes old tool
    results.
    """

    kind: CompactionKind = "full"
    focus: str = ""


class Rewind(_Order, frozen=True, tag="rewind"):
    """Go back to before event `to`: "conversation", "files" or "both". With `only`, no files but these.

    Files that another program has changed since need `force`, or stay with `keep_others`.
    """

    to: _Counted
    what: Literal["both", "conversation", "files"] = "both"
    force: bool = False
    # Paths are absolute, or relative to the workspace.
    only: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    keep_others: bool = False


class EditMessage(_Order, frozen=True, tag="edit_message"):
    """Change a message of the conversation, between turns; the next request has the new text."""

    message: _Counted  # the number of the event that brought it
    text: str


class DeleteMessage(_Order, frozen=True, tag="delete_message"):
    """Take a message out of the conversation; an answer goes with the results of its calls."""

    message: _Counted


class WithdrawMessage(_Order, frozen=True, tag="withdraw_message"):
    """Withdraw a message that waits for the end of the turn."""

    message: _Counted  # the number of the event that brought it


class Fork(_Order, frozen=True, tag="fork"):
    """Copy the session up to event `at`, or all of it. This one continues; `fork_made` names the copy."""

    at: _Counted | None = None


class SetMode(_Order, frozen=True, tag="set_mode"):
    """As `--permission-mode`."""

    mode: str


class SetModel(_Order, frozen=True, tag="set_model"):
    """As `-m`, between turns. `format` is how the conversation is sent as one text.

    With "" as `model`, only that is set.
    """

    model: str
    format: Format | Literal[""] = ""


class SetEffort(_Order, frozen=True, tag="set_effort"):
    """As `--effort`, between turns."""

    effort: Effort


class SwitchTeams(_Order, frozen=True, tag="toggle_teams"):
    """Whether the agent may lead a team, from the next turn on."""

    on: bool


class SwitchTracing(_Order, frozen=True, tag="toggle_tracing"):
    """Whether model requests are recorded as sent, from the next turn on.

    Subagents do as the setting `log_requests` says.
    """

    on: bool


class SetAgent(_Order, frozen=True, tag="set_agent"):
    """As `--agent` and `--preset`, between turns. With "" as `agent`, only the preset is set."""

    agent: str
    preset: str = ""


class SetBudget(_Order, frozen=True, tag="budget"):
    """The budget of a turn, also of the running one: what is not given has no limit."""

    dollars: _AboveZero | None = None
    tokens: _Counted | None = None
    calls: _Counted | None = None
    seconds: _AboveZero | None = None


class SetSteps(_Order, frozen=True, tag="steps"):
    """The step limit of a turn, also of the running one; 0: that of the settings."""

    steps: _Steps


class SetDirectory(_Order, frozen=True, tag="set_directory"):
    """Continue in `directory` ("": where it works now), with `added` ones. Between turns.

    What the folder says counts only if it is trusted.
    """

    directory: str = ""
    added: tuple[str, ...] = ()


class EnterWorktree(_Order, frozen=True, tag="enter_worktree"):
    """Work in the git worktree of that name, which is made if there is none. Between turns.

    `branch` is checked out in a new one; "": a new branch refold/NAME.
    """

    name: str = ""
    branch: str = ""


class LeaveWorktree(_Order, frozen=True, tag="leave_worktree"):
    """Work in the session's own directory again. The worktree is kept."""


class RemoveWorktree(_Order, frozen=True, tag="remove_worktree"):
    """Remove the worktree of that name; "": the one the session works in, which it leaves.

    `force`: also where something is lost that is not committed.
    """

    name: str = ""
    force: bool = False


class StopChild(_Order, frozen=True, tag="stop_child"):
    """Stop a subagent and all below it; "": all of them. The turn continues."""

    child: str = ""


class MailTeammate(_Order, frozen=True, tag="mail_teammate"):
    """A message of the user for one member of the team, and not for its leader."""

    teammate: str
    text: str


class MoveToBackground(_Order, frozen=True, tag="move_to_background"):
    """Move the command of this call of `bash` to the background; "": of all that run.

    The call ends with the output so far, and the turn continues.
    """

    call_id: str = ""


class StopBackground(_Order, frozen=True, tag="stop_background"):
    """Stop a background command; "": all of them. The turn continues."""

    name: str = ""


class Rename(_Order, frozen=True, tag="rename"):
    """Name the session; "" removes its name."""

    name: str


class ChangeTags(_Order, frozen=True, tag="tag"):
    """`+TAG` adds a tag, `-TAG` removes one."""

    changes: tuple[str, ...]


class ShellOutput(_Order, frozen=True, tag="shell_output"):
    """A command that the person ran, and what it printed: sent with the next message."""

    command: str
    output: str


class ReportStatus(_Order, frozen=True, tag="status"):
    """Write a `status` document."""


class ReportSnapshot(_Order, frozen=True, tag="snapshot"):
    """Write a `snapshot` document."""


class _Block(Struct, frozen=True):
    type: str
    text: str = ""


class _Message(Struct, frozen=True):
    content: str | list[_Block]
    role: str = "user"


class User(Struct, frozen=True, tag_field="type", tag="user"):
    """A message in the format of programs that were written for another agent."""

    message: _Message


class PlainMessage(_Order, frozen=True, tag="message"):
    """A message in the format of clients that were written for another server."""

    content: str


_NONE_OF = r"Invalid (?:enum )?value '(.*)' - at `\$\.(\w+)`"
Order: TypeAlias = (
    SendMessage | Steer | Queue | ApprovalResponse | QuestionResponse | PlanApproval
    | InstructionsResponse | Interrupt | Cancel | Continue | CompactConversation | Rewind | EditMessage
    | DeleteMessage | WithdrawMessage | Fork | SetMode
    | SetModel | SetEffort | SetAgent | SwitchTeams | SwitchTracing | SetBudget | SetSteps
    | SetDirectory | EnterWorktree | LeaveWorktree | RemoveWorktree | StopChild | MailTeammate
    | MoveToBackground | StopBackground | Rename | ChangeTags | ShellOutput | ReportStatus | ReportSnapshot
)  # fmt: skip
ORDER_KINDS: tuple[type[Struct], ...] = (*get_args(Order), User, PlainMessage)
_ORDER_TYPES = tuple(str(each.__struct_config__.tag) for each in get_args(Order))


def parse_order(line: bytes) -> Order:
    """The order in this line. Raises `BadInput` that says what is wrong."""
    text = line.removeprefix(BOM_UTF8)
    try:
        order = msgspec.json.decode(
            _replace_surrogates(text), type=Order | User | PlainMessage
        )
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not an order: {_explain(reason_of(error))}") from error
    if (key := find_repeated_key(text)) is not None:
        raise BadInput(f"this is not an order: the key {key[:60]!r} stands twice in it")
    match order:
        case User(message):
            return _to_send_message(message)
        case PlainMessage(content=content):
            return SendMessage(content, client_key=order.client_key)
        case Interrupt(content=content) if content:
            return Interrupt(
                order.instead or content, order.reason, client_key=order.client_key
            )
        case _:
            return order


def _explain(problem: str) -> str:
    """The error of msgspec, and what is possible instead."""
    match = re.search(_NONE_OF, problem)
    if match is None:
        return problem
    known = (
        _ORDER_TYPES
        if match[2] == "type"
        else get_args(CompactionKind)
        if match[2] == "kind"
        else ()
    )
    from difflib import get_close_matches

    suggestions = get_close_matches(match[1], known, n=1)
    hint = (
        f"; did you mean {suggestions[0]!r}?"
        if suggestions
        else f"; there are {', '.join(known)}"
    )
    unknown = known and match[1] not in known  # one that there is stands there twice
    return f"there is no {match[2]} {match[1]!r}{hint}" if unknown else problem


def _replace_surrogates(line: bytes) -> bytes:
    """The line with each lone surrogate replaced by U+FFFD."""
    if b"\\ud" not in line.lower():
        return line
    import json

    return clean(json.dumps(json.loads(line), ensure_ascii=False)).encode()


def _to_send_message(message: _Message) -> SendMessage:
    if isinstance(message.content, str):
        return SendMessage(message.content)
    if other_type := next((b.type for b in message.content if b.type != "text"), None):
        raise BadInput(f"a message may hold text only, and not {other_type!r}")
    return SendMessage("\n\n".join(block.text for block in message.content))
