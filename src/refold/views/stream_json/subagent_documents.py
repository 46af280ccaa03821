"""The documents about subagents, and about the variables of code that runs. Pure.

A part of the JSON stream: `documents` has the others.
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
    """The end of a subagent, with the `usage` and `cost` of it and all its subagents."""

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
    """The total grant of a subagent."""

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
    """The Python of the session begins with this variable. `blob` is its JSON.

    `files` are those it was read from, with their hashes; `listed` is a blob with a very long
    list of them.
    """

    name: str
    blob: str
    files: Mapping[str, str]
    listed: str


class Variables(Written, frozen=True, kw_only=True, tag="variables"):
    """The variables of that Python were saved: their types; and what was lost, with the reason."""

    kept: Mapping[str, str]
    lost: Mapping[str, str]


class VariablesRestored(Written, frozen=True, kw_only=True, tag="variables_restored"):
    """They were restored in a new Python process; `source` is another session that had them."""

    source: str
    kept: Mapping[str, str]
    lost: Mapping[str, str]
