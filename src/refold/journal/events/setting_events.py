"""The kinds of events that set something of a session: its name, mode, agent, model or limits.

They are a part of the kinds in `kinds`, and follow its rules.
"""

from typing import Literal

from msgspec import Struct

from refold.values.modes import Effort, Format, Mode
from refold.values.usage import NO_LIMIT, Budget


class ModeChanged(Struct, frozen=True):
    """The user chose the permission mode."""

    mode: Mode


class AgentChosen(Struct, frozen=True):
    """The user chose the agent, from the next turn on.

    `after_plan` is the agent that carries out the plans of `agent` after their approval; "" is
    `agent` itself. `preset` names the prompt of the agent `main`; "" means that this prompt
    stays.
    """

    agent: str
    after_plan: str = ""
    preset: str = ""


class ModelChosen(Struct, frozen=True):
    """The user chose the model, as provider/model, from the next turn on.

    `format` is how the conversation is written for a model that gets it as one text, such as
    "markdown"; "" means no change.
    """

    model: str
    format: Format | Literal[""] = ""


class EffortChosen(Struct, frozen=True):
    """The user chose the reasoning effort, from the next turn on."""

    effort: Effort


class Renamed(Struct, frozen=True):
    """The user named the session; "" removes the name. Names need not be unique."""

    name: str


class Titled(Struct, frozen=True):
    """A model gave the session this title, after its first turn or after the user left it."""

    title: str


class Tagged(Struct, frozen=True):
    """The user set the tags of the session. They replace all earlier tags."""

    tags: tuple[str, ...]


class BudgetSet(Struct, frozen=True):
    """The user, or in a subagent its parent, set the budget of a turn."""

    budget: Budget = NO_LIMIT
    final: bool = False  # the parent cannot grant more
    share_left: float = 1.0  # the share of the parent's own budget that is left


class StepLimitSet(Struct, frozen=True):
    """The user set the number of model responses in one turn."""

    steps: int = 0  # 0: as in the settings
