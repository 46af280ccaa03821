"""Which rule can be offered "for this session": one that really lets the call pass.

Pure. Where an ask rule decided, or no rule can see the whole of a command, there
is none, and only "once" is offered.
"""

from refold.cli.terminal.surroundings import Surroundings
from refold.engine.judging import judge, touch
from refold.errors import BadInput, ToolFailed
from refold.journal.fold import View
from refold.permissions.rules import narrowest
from refold.values.messages import ToolCall


def offered(call: ToolCall, around: Surroundings, view: View) -> str:
    """The narrowest rule that covers this call, or ""."""
    tool = around.tool(call.name)
    if tool is None:
        return ""
    try:
        found = touch(tool, tool.parse(call.arguments), around)
        called = (*found.real[:1], *found.subjects, "")[0]
        rule = narrowest(found.tool, found.outside or called)
        passes = bool(rule) and judge(found, around, view, (rule,)).verdict == "allow"
    except (ToolFailed, BadInput):
        return ""
    return rule if passes else ""
