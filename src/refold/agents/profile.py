"""An agent, as a value: who it is told to be, what it may use, how it is bounded.

The same profile behaves the same wherever it works. A profile only ever narrows: it
leaves tools out and adds rules that ask or deny; what runs unasked stays the business
of the settings and of the person. Which agents there are says `registry`; the tools of
one are picked in `given`.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from refold.permissions.rules import Rule, parse
from refold.permissions.tool_families import reads
from refold.values.modes import Mode
from refold.values.tools import Effect

Role: TypeAlias = Literal["main", "small", "big", "judge"]
Use: TypeAlias = Literal["main", "child", "both"]
# As the model takes tools; or in words, whatever else it can; or by writing Python.
Acting: TypeAlias = Literal["native", "text", "code"]

EVERY = frozenset(Effect)
LOOKING = frozenset((Effect.LOOK, Effect.ASK, Effect.SELF))


class Bounds(Struct, frozen=True):
    """What bounds a turn of this agent. 0: as the settings have it."""

    steps: int = 0  # answers of the model
    output: int = 0  # tokens of one answer
    result: int = 0  # characters of one result


class Leash(Struct, frozen=True):
    """How far code may go that an agent writes. 0: as the settings have it."""

    fan_out: int = 0  # items of one map_lm or map_rlm
    at_once: int = 0  # model calls and children of a session at the same time
    depth: int = 0  # children below children
    cell: float = 0.0  # seconds of one cell; while it waits for a call they do not count
    call: float = 0.0  # seconds of one leaf


class Profile(Struct, frozen=True, kw_only=True):
    """`tools` and `deferred` are names, or patterns as `mcp__*`; what both name is deferred.

    A tool with an effect that is not in `effects` is never given, whoever names it.
    """

    name: str
    description: str  # for whoever chooses one, a person or a model
    prompt: str = ""  # "": the one of the preset
    short: str = ""  # what a small model is told instead; "": the same
    version: int = 0  # of the prompt
    role: Role = "main"  # of the model
    tools: tuple[str, ...] = ("*",)
    deferred: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # those it never has, whatever else names them
    effects: frozenset[Effect] = EVERY
    ask: tuple[str, ...] = ()  # rules of its own, beside all others
    deny: tuple[str, ...] = ()
    bounds: Bounds = Bounds()
    leash: Leash = Leash()
    mode: Mode | Literal[""] = ""  # that it begins in; "": the one that is set
    then: str = ""  # the agent that carries out a plan of its making
    memory: bool = True  # is it told what is remembered,
    skills: bool = True  # and which skills there are?
    acting: Acting = "native"
    use: Use = "both"  # may it work for the person, for another agent, or both?
    where: str = ""  # the file it is from, fit for a screen; "": it comes with refold

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Raises `BadInput` for one that is none."""
        source = f"agent {self.name}"
        asking = (parse(text, "ask", source) for text in self.ask)
        return (*asking, *(parse(text, "deny", source) for text in self.deny))

    @property
    def reading(self) -> tuple[Rule, ...]:
        """Those of its rules that hold for whatever reads, be it a tool, a command or code."""
        return tuple(rule for rule in self.rules if reads(rule.tool))


def unused_preset(profile: Profile, preset: str) -> str:
    """What a person who chose `preset` is told, if this agent has no use for it; else ""."""
    if not (preset and profile.prompt):
        return ""
    return f"the preset {preset!r} is not used: the agent {profile.name} has a prompt of its own"
