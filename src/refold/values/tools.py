"""What a tool is to a model (`ToolSpec`) and to the permission rules (`Effect`, `Confinement`)."""

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

if TYPE_CHECKING:
    from refold.values.hosts import ReachableHosts  # most starts know no command


class Effect(Enum):
    """What a call can do. Permission and recovery depend on it, not on tool names."""

    LOOK = "look"  # reads
    CHANGE = "change"  # writes files
    RUN = "run"  # executes
    NET = "net"  # talks to the network
    ASK = "ask"  # needs the person
    SELF = "self"  # changes only the session

    @property
    def repeatable(self) -> bool:
        """Whether a call that a crash interrupted may simply be repeated."""
        return self in (Effect.LOOK, Effect.SELF, Effect.ASK)


# The tool that starts a subagent.
TASK = "task"

# The tools of a team; those of LEADING only its leader has, and IDLE only its teammates.
LEADING = ("spawn_teammate", "shutdown_teammate", "review_plan")
IDLE = "idle"
OF_TEAMMATES = ("send_message", "broadcast", "read_inbox", "list_teammates", IDLE)
TEAM = (*LEADING, *OF_TEAMMATES)

# The tool that calls another: a list of tools that never changes reaches more of them.
CALLER_TOOL = "tool_call"


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Raw


class Confinement(Struct, frozen=True):
    """What a command may do besides computing and reading. The sandbox enforces it.

    With `writes` it may change files below the workspace, except protected ones that are not
    in `opened`: absolute paths, links resolved, that the user saw. What git may write of its
    own settings without a question is in `of_git`: nothing may run by it. Without `writes` it reads
    the workspace, what programs need, and `seen`: paths that it names and a rule allows; with
    `narrow`, a command that writes reads no more than that either. With `network` it reaches
    `hosts`, through a filter; None: every host.
    """

    writes: bool = False
    network: bool = False
    opened: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    narrow: bool = False
    of_git: tuple[str, ...] = ()
    hosts: "ReachableHosts | None" = None
