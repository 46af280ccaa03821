"""What the words "tool" and "effect" mean, to a model and to a rule."""

from enum import Enum

from msgspec import Raw, Struct


class Effect(Enum):
    """What a call can do. Permission and recovery go by this, not by names."""

    LOOK = "look"  # reads
    CHANGE = "change"  # writes files
    RUN = "run"  # executes
    NET = "net"  # talks to the network
    ASK = "ask"  # needs the person
    SELF = "self"  # changes only the session

    @property
    def repeatable(self) -> bool:
        """May a call that a crash cut off simply be done again?"""
        return self in (Effect.LOOK, Effect.SELF, Effect.ASK)


# The tool that starts a subagent.
TASK = "task"

# The tool that calls another: a list of tools that never changes reaches more of them.
CALLER = "tool_call"


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Raw


# How far a command is kept in: said by the rules, heard by the place.


class Confines(Struct, frozen=True):
    """What a command may do besides computing and reading. The place sees to it.

    With `writes` it may change files below the workspace, but no protected ones, save
    those in `opened`, absolute and with links followed: a person saw them named. Without
    `writes` it reads the workspace, what programs need, and what is in `seen`: paths that it
    names and a rule allows.
    """

    writes: bool = False
    network: bool = False
    opened: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
