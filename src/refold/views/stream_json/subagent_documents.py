"""Defines the documents about subagents and about the variables of code. Pure.

They are a part of the JSON stream; `documents` defines most others.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, UnsetType

from refold.values.modes import Outcome
from refold.values.usage import Usage
from refold.views.stream_json.documents import Cost, Unlimited, Written


class SubagentStart(Written, frozen=True, kw_only=True, tag="subagent_start"):
    """A subagent starts. `title` is its task in a few words, `teammate` its name in a team.

    With `background` the turn does not wait for it. It may work in the `directory` of a
    working tree of its own, on the `branch`.
    """

    child: str
    call_id: str
    agent: str
    task: str
    background: bool
    directory: str
    branch: str
    title: str | UnsetType = UNSET
    teammate: str | UnsetType = UNSET


class SubagentEnd(Written, frozen=True, kw_only=True, tag="subagent_end"):
    """A subagent has ended. `usage` and `cost` include all its subagents."""

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
    """The budget that a subagent may use in total was changed; null: no limit."""

    child: str
    dollars: Unlimited
    tokens: Unlimited
    calls: Unlimited
    seconds: Unlimited


class SubagentStopped(Written, frozen=True, kw_only=True, tag="subagent_stopped"):
    """A person or program asked this subagent to stop."""

    child: str
    reason: str


class VariableHanded(Written, frozen=True, kw_only=True, tag="variable_handed"):
    """The Python of the session starts with this variable. `blob` is its JSON.

    `files` are the files from which it was read, with their hashes. If there are very many,
    the blob `listed` has their list.
    """

    name: str
    blob: str
    files: Mapping[str, str]
    listed: str


class Variables(Written, frozen=True, kw_only=True, tag="variables"):
    """The variables of the session's Python were saved.

    `kept` has the type of each saved variable, `lost` the reason why a variable is lost.
    """

    kept: Mapping[str, str]
    lost: Mapping[str, str]


class VariablesRestored(Written, frozen=True, kw_only=True, tag="variables_restored"):
    """Variables were restored in a new Python process.

    `source` is the session that saved them, or "" if this session did.
    """

    source: str
    kept: Mapping[str, str]
    lost: Mapping[str, str]
