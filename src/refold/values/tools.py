"""The description of a tool for a model (`ToolSpec`) and for the permission rules (`Effect`,
`Confinement`).
"""

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

if TYPE_CHECKING:
    # Imported late: most starts run no command.
    from refold.values.hosts import ReachableHosts


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

# The tools of a team. Only a leader has those of LEADING, and only its teammates have IDLE.
LEADING = ("spawn_teammate", "shutdown_teammate", "review_plan")
IDLE = "idle"
OF_TEAMMATES = ("send_message", "broadcast", "read_inbox", "list_teammates", IDLE)
TEAM = (*LEADING, *OF_TEAMMATES)

# The tool that calls another tool. With it a model can use tools that are not in its list,
# so the list never changes.
CALLER_TOOL = "tool_call"


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Raw


class Confinement(Struct, frozen=True):
    """What a command may do besides computing and reading. The sandbox enforces it.

    With `writes`, the command may change files below the workspace. Protected files are
    excepted, unless the user saw them and they are in `opened` (absolute paths, links
    resolved). `of_git` has the settings that git may write without a question: nothing in them
    can start a program. Without `writes`, the command may read only the workspace, what
    programs need, and `seen`: the paths that the command names and a rule allows. With
    `narrow`, this limit on reading applies to a command with `writes`, too. With `network`, the
    command may reach `hosts`, through a filter; None means every host.
    """

    writes: bool = False
    network: bool = False
    opened: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    narrow: bool = False
    of_git: tuple[str, ...] = ()
    hosts: "ReachableHosts | None" = None
