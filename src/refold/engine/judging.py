"""What the rules say of a call: its facts gathered, the session's grants counted in.

The seam asks before a call runs; a door asks which rule it may offer a person.
Both must come to the same answer, so both come here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from refold.journal.fold import View
from refold.permissions.decide import Decision, Touch, decide
from refold.permissions.rules import Rule, parse
from refold.tools.contract import Tool
from refold.values.rights import Mode


class Grounds(Protocol):
    """What calls are judged by, besides what the session itself knows."""

    @property
    def rules(self) -> Sequence[Rule]: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def outside(self) -> Callable[[str], str | None]: ...
    @property
    def names(self) -> Callable[[str], tuple[str, ...]]: ...


def touch(tool: Tool, arguments: Mapping[str, object], grounds: Grounds) -> Touch:
    """What a call would do. Raises `ToolFailed` where its path cannot be one."""
    subject = tool.touches(arguments)
    path = str(arguments.get(tool.path, ""))  # "": left out, and then it is the root
    outside = (grounds.outside(path) or "") if path else ""
    subjects = tuple(s for s in (subject, outside) if s)
    real = grounds.names(path) if path and tool.subject == tool.path else ()
    return Touch(tool.spec.name, tool.effect, subjects, outside, real)


def judge(found: Touch, grounds: Grounds, view: View, also: Sequence[str] = ()) -> Decision:
    """What holds now. `also` are allow rules that a person might still give."""
    granted = [*view.rights.granted, *also]
    rules = [*grounds.rules, *(parse(rule, "allow", "this session") for rule in granted)]
    return decide(found, view.rights.mode or grounds.mode, rules)
