"""The orders that a client can send to a session: one class for each, and one JSON line
over stdio.

Each type is in docs/reference/stream.md; a test compares the two. `client.order_sink` says where
orders go; `views.stream_json` has the documents that a session sends.
"""

import re
from codecs import BOM_UTF8
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

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
    """The fields of every order. An unknown field is an error, because it may be mistyped.

    If two orders have the same `client_key`, only the first is carried out. This holds for a
    message as long as its journal exists, and for any other order as long as the process
    lives.

    `by` is the person who gives the order, for a program that serves several people; "" means
    the user of the process. A server replaces `by` by the person who is logged in.
    """

    client_key: str = ""
    by: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] = ""


class SendMessage(_Order, frozen=True, tag="user_message"):
    """Send a message that begins a turn of its own, or, with `when` "now", reaches the
    running turn.

    `images` have `content` (base64), `kind` and `name`. `typed` is the part of the text
    that a person wrote, if a program added the rest.
    """

    text: str
    when: Literal["next", "now"] = "next"
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class Steer(_Order, frozen=True, tag="steer"):
    """Send a message to the running turn, for its next step.

    The message starts a turn if none runs.
    """

    text: str
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class Queue(_Order, frozen=True, tag="queue"):
    """Queue a message until the running turn ends.

    The message is recorded at once; all queued messages become one turn.
    """

    text: str
    images: tuple[ImageData, ...] = ()
    typed: str | None = None


class ApprovalResponse(_Order, frozen=True, tag="tool_approval_response"):
    """Allow or refuse a call. Without `hash`, the answer is to the newest request.

    With `grant` "session" or "always", rules are added: `rule`, by default the first of the
    offered `rules`, or all rules of `rule_set`. The rules also allow other calls, even
    waiting ones. After `limits.answer_seconds` seconds without an answer, the answer is "no".
    """

    call_id: str
    allowed: bool
    hash: str = ""
    reason: str = ""
    # "session" or "always"; or one of the offered rules, which is granted for the session
    grant: str = ""
    rule: str = ""
    rule_set: tuple[str, ...] = ()


class QuestionResponse(_Order, frozen=True, tag="question_response"):
    """Answer the questions of a call: one answer for each question, in their order; ""
    for none.
    """

    call_id: str
    answers: tuple[str, ...]
    hash: str = ""


class InstructionsResponse(_Order, frozen=True, tag="instructions_response"):
    """Answer the question `instructions` of a status document. Only a server asks it.

    With `use`, the new version of the instructions is used, otherwise the trusted version.
    """

    hash: str
    use: bool


# "": the mode before plan mode
ModeAfterPlan: TypeAlias = Literal["", "default", "accept-edits"]


class PlanApproval(_Order, frozen=True, tag="plan_approval"):
    """Approve or reject a plan.

    If `approved`, the next turn carries out the plan in `mode`: "default", "accept-edits", or
    "" for the mode before plan mode. `text` is the edited plan, if it was edited. If not
    approved, `feedback` asks for a better plan.
    """

    plan: int  # event number of the plan; 0: the plan that waits
    approved: bool
    text: str = ""
    feedback: str = ""
    mode: ModeAfterPlan = ""


class Interrupt(_Order, frozen=True, tag="interrupt"):
    """Stop the turn. `instead` is the next message; `content` is another name for it."""

    instead: str = ""
    reason: str = "interrupted"
    content: str = ""  # as in `PlainMessage`


class Cancel(_Order, frozen=True, tag="cancel"):
    """Stop the turn with the outcome "cancelled", as a program does."""

    reason: str = "cancelled"


class Continue(_Order, frozen=True, tag="continue"):
    """Continue where the last turn ended, without a new message."""


class CompactConversation(_Order, frozen=True, tag="compact"):
    """Compact the conversation; during a turn, at its next step.

    "full" replaces old messages by a summary that preserves `focus`, "prune" removes old tool
    results.
    """

    kind: CompactionKind = "full"
    focus: str = ""


class Rewind(_Order, frozen=True, tag="rewind"):
    """Go back to before event `to`: "conversation", "files" or "both".

    With `only`, no other files are restored. If another program has changed a file since,
    the order is refused, unless `force` overwrites such files or `keep_others` leaves them.
    """

    to: _Counted
    what: Literal["both", "conversation", "files"] = "both"
    force: bool = False
    # Paths are absolute, or relative to the workspace.
    only: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    keep_others: bool = False


class EditMessage(_Order, frozen=True, tag="edit_message"):
    """Change a message of the conversation, between turns.

    The next model request has the new text.
    """

    message: _Counted  # the number of the event that recorded it
    text: str


class DeleteMessage(_Order, frozen=True, tag="delete_message"):
    """Remove a message from the conversation.

    A model response is removed together with the results of its calls.
    """

    message: _Counted


class WithdrawMessage(_Order, frozen=True, tag="withdraw_message"):
    """Withdraw a message that waits for the end of the turn."""

    message: _Counted  # the number of the event that recorded it


class Fork(_Order, frozen=True, tag="fork"):
    """Copy the session up to event `at`, or all of it.

    This session continues; the document `fork_made` has the id of the copy.
    """

    at: _Counted | None = None


class SetMode(_Order, frozen=True, tag="set_mode"):
    """Set the permission mode, as `--permission-mode` does."""

    mode: str


class SetModel(_Order, frozen=True, tag="set_model"):
    """Set the model between turns, as `-m` does. If `model` is "", only the format is set.

    With a `format`, the model gets the conversation as one text in this format.
    """

    model: str
    format: Format | Literal[""] = ""


class SetEffort(_Order, frozen=True, tag="set_effort"):
    """Set the effort between turns, as `--effort` does."""

    effort: Effort


class SwitchTeams(_Order, frozen=True, tag="toggle_teams"):
    """Set whether the agent may lead a team, from the next turn on."""

    on: bool


class SwitchTracing(_Order, frozen=True, tag="toggle_tracing"):
    """Set whether model requests are recorded as sent, from the next turn on.

    For subagents the setting `log_requests` decides.
    """

    on: bool


class SetAgent(_Order, frozen=True, tag="set_agent"):
    """Set agent and preset between turns, as `--agent` and `--preset` do.

    If `agent` is "", only the preset is set.
    """

    agent: str
    preset: str = ""


class SetBudget(_Order, frozen=True, tag="budget"):
    """Set the budget of a turn, also of the running one.

    A field that is left out has no limit.
    """

    dollars: _AboveZero | None = None
    tokens: _Counted | None = None
    calls: _Counted | None = None
    seconds: _AboveZero | None = None


class SetSteps(_Order, frozen=True, tag="steps"):
    """Set the step limit of a turn, also of the running one; 0 is the limit of the
    settings.
    """

    steps: _Steps


class SetDirectory(_Order, frozen=True, tag="set_directory"):
    """Continue in `directory` between turns; "" keeps the present directory.

    `added` directories join the workspace. The settings and instructions of the folder apply
    only if the folder is trusted.
    """

    directory: str = ""
    added: tuple[str, ...] = ()


class EnterWorktree(_Order, frozen=True, tag="enter_worktree"):
    """Work in the git worktree of that name, which is created if it does not exist.

    The order is for the time between turns. `branch` is checked out in a new worktree; ""
    means a new branch refold/NAME.
    """

    name: str = ""
    branch: str = ""


class LeaveWorktree(_Order, frozen=True, tag="leave_worktree"):
    """Work in the session's own directory again. The worktree is kept."""


class RemoveWorktree(_Order, frozen=True, tag="remove_worktree"):
    """Remove the worktree of that name.

    "" means the worktree in which the session works; the session leaves it. With `force`,
    uncommitted work in the worktree is deleted.
    """

    name: str = ""
    force: bool = False


class StopChild(_Order, frozen=True, tag="stop_child"):
    """Stop a subagent and all below it; "" stops all subagents. The turn continues."""

    child: str = ""


class MailTeammate(_Order, frozen=True, tag="mail_teammate"):
    """Send a message of the user to one member of the team, and not to its leader."""

    teammate: str
    text: str


class MoveToBackground(_Order, frozen=True, tag="move_to_background"):
    """Move the command of this `bash` call to the background; "" moves all running
    commands.

    The call ends with the output so far, and the turn continues.
    """

    call_id: str = ""


class StopBackground(_Order, frozen=True, tag="stop_background"):
    """Stop a background command; "" stops all background commands. The turn continues."""

    name: str = ""


class Rename(_Order, frozen=True, tag="rename"):
    """Name the session; "" removes its name."""

    name: str


class ChangeTags(_Order, frozen=True, tag="tag"):
    """`+TAG` adds a tag, `-TAG` removes one."""

    changes: tuple[str, ...]


class ShellOutput(_Order, frozen=True, tag="shell_output"):
    """Record a command that the person ran, with its output.

    Both are sent with the next message.
    """

    command: str
    output: str


class UploadFile(_Order, frozen=True, tag="upload_file"):
    """Put a file (`content` in base64) into the workspace, with checkpoints around it.

    An existing file is kept, unless `replaces` is its SHA-256 or "*". With `renames`, the new
    file is stored beside an existing file, under another name.
    """

    path: str
    content: bytes
    replaces: str = ""
    renames: bool = False


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


# The error of msgspec for a value that is not in a list of possible values.
_UNKNOWN_VALUE_PATTERN = r"Invalid (?:enum )?value '(.*)' - at `\$\.(\w+)`"
_MAX_KEY_CHARS = 60  # of a key in an error
Order: TypeAlias = (
    SendMessage | Steer | Queue | ApprovalResponse | QuestionResponse | PlanApproval
    | InstructionsResponse | Interrupt | Cancel | Continue | CompactConversation | Rewind | EditMessage
    | DeleteMessage | WithdrawMessage | Fork | SetMode
    | SetModel | SetEffort | SetAgent | SwitchTeams | SwitchTracing | SetBudget | SetSteps
    | SetDirectory | EnterWorktree | LeaveWorktree | RemoveWorktree | StopChild | MailTeammate
    | MoveToBackground | StopBackground | Rename | ChangeTags | ShellOutput | UploadFile
    | ReportStatus | ReportSnapshot
)  # fmt: skip
ORDER_KINDS: tuple[type[Struct], ...] = (*get_args(Order), User, PlainMessage)
_ORDER_TYPES = tuple(str(order.__struct_config__.tag) for order in get_args(Order))


def parse_order(line: bytes) -> Order:
    """Parse the order in this line. Raises `BadInput` with the reason."""
    text = line.removeprefix(BOM_UTF8)
    try:
        order = msgspec.json.decode(
            _replace_surrogates(text), type=Order | User | PlainMessage
        )
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not an order: {_explain(reason_of(error))}") from error
    # Programs differ in which of two equal keys they use.
    if (key := find_repeated_key(text)) is not None:
        shown_key = key[:_MAX_KEY_CHARS]
        raise BadInput(f"this is not an order: the key {shown_key!r} stands twice in it")
    match order:
        case User(message):
            return _to_send_message(message)
        case PlainMessage(content=content):
            return SendMessage(content, client_key=order.client_key, by=order.by)
        case Interrupt(content=content) if content:
            # `content` is only another name for `instead`
            return replace(order, instead=order.instead or content, content="")
        case _:
            return order


def _explain(problem: str) -> str:
    """Add the possible values to an error of msgspec about an unknown value.

    All other errors are returned unchanged.
    """
    match = re.search(_UNKNOWN_VALUE_PATTERN, problem)
    if match is None:
        return problem
    value, field = match[1], match[2]
    values = {"type": _ORDER_TYPES, "kind": get_args(CompactionKind)}.get(field, ())
    # msgspec reports a possible value as unknown if its field occurs twice.
    if not values or value in values:
        return problem
    from difflib import get_close_matches

    suggestions = get_close_matches(value, values, n=1)
    if suggestions:
        return f"there is no {field} {value!r}; did you mean {suggestions[0]!r}?"
    return f"there is no {field} {value!r}; there are {', '.join(values)}"


def _replace_surrogates(line: bytes) -> bytes:
    """Return the line with each lone surrogate replaced by U+FFFD."""
    if b"\\ud" not in line.lower():  # the escapes \ud800 to \udfff are surrogates
        return line
    import json

    # `json` accepts lone surrogates and joins pairs; `msgspec` rejects lone ones.
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return clean(text).encode()


def _to_send_message(message: _Message) -> SendMessage:
    """Return the order for a message of text blocks. Raises `BadInput` for other blocks."""
    if isinstance(message.content, str):
        return SendMessage(message.content)
    for block in message.content:
        if block.type != "text":
            raise BadInput(f"a message may hold text only, and not {block.type!r}")
    return SendMessage("\n\n".join(block.text for block in message.content))
