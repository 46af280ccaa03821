"""Documents about children, code and copies, and those of live news, as types. Part of
`documents`. Pure.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from refold.values.live import CallComing, Progress, TextCame, ThinkingCame, Waiting
from refold.values.outcome import Outcome
from refold.values.usage import Usage
from refold.views.documents import Cost, Unlimited, Written

After: TypeAlias = Annotated[
    int, Meta(ge=0, description="the number of the event that it follows")
]


class SubagentStart(Written, frozen=True, kw_only=True, tag="subagent_start"):
    """A child is about to be made."""

    child: str
    call_id: str
    agent: str
    task: str
    background: bool
    directory: str
    branch: str


class SubagentEnd(Written, frozen=True, kw_only=True, tag="subagent_end"):
    """What a child came to, with all below it."""

    child: str
    outcome: Outcome
    status: Literal["done", "partial", "failed"]
    text: str
    reason: str
    usage: Usage
    cost: Cost
    directory: str
    branch: str


class SubagentBudget(Written, frozen=True, kw_only=True, tag="subagent_budget"):
    """A child may use up so much, all in all."""

    child: str
    dollars: Unlimited
    tokens: Unlimited
    calls: Unlimited
    seconds: Unlimited


class SubagentStopped(Written, frozen=True, kw_only=True, tag="subagent_stopped"):
    """Somebody wants this child to end."""

    child: str
    reason: str


class VariableHanded(Written, frozen=True, kw_only=True, tag="variable_handed"):
    """The Python of the session begins with this variable."""

    name: str
    blob: str
    files: dict[str, str]
    listed: str


class Variables(Written, frozen=True, kw_only=True, tag="variables"):
    """The Python of the session was kept: names and types; and what was lost, with why."""

    kept: dict[str, str]
    lost: dict[str, str]


class VariablesRestored(Written, frozen=True, kw_only=True, tag="variables_restored"):
    """A fresh Python was given them; `source` is another session."""

    source: str
    kept: dict[str, str]
    lost: dict[str, str]


class Forked(Written, frozen=True, kw_only=True, tag="forked", rename={"event": "from"}):
    """All up to here is a copy of the session `source`."""

    source: str
    event: int


class Imported(Written, frozen=True, kw_only=True, tag="imported"):
    """All up to here came from a file."""

    source: str
    session_id: str
    directory: str


class _Live(Struct, frozen=True, kw_only=True, tag_field="type"):
    after: After


class TextDelta(_Live, frozen=True, kw_only=True, tag="text_delta"):
    """A piece of the answer."""

    text: str


class ThinkingDelta(_Live, frozen=True, kw_only=True, tag="thinking_delta"):
    """A piece of what the model thinks aloud."""

    text: str


class CallBegun(_Live, frozen=True, kw_only=True, tag="call_coming"):
    """The model has begun to write a call of this tool."""

    name: str


class ToolProgress(_Live, frozen=True, kw_only=True, tag="tool_progress"):
    """A piece of what a running call prints."""

    call_id: str
    text: str


class Retry(_Live, frozen=True, kw_only=True, tag="retry"):
    """The provider is asked again, after `seconds`."""

    seconds: float
    reason: str


class WithinChild(_Live, frozen=True, kw_only=True, tag="within"):
    """News of the child `node`."""

    node: str
    live: TextCame | ThinkingCame | CallComing | Progress | Waiting


class ChildMoved(_Live, frozen=True, kw_only=True, tag="child_moved"):
    """How far a child is, and what it does now."""

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: Cost
    label: str
