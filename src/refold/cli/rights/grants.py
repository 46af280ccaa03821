"""Which rule can be offered for a call: one that really lets it pass.

Pure. Where only this one call may be allowed, an ask rule decided, or no rule can see
the whole of a command, there is none, and only "once" is offered.
"""

from refold.engine.judging import Grounds, judge, touch
from refold.errors import BadInput, ToolFailed
from refold.journal.fold import View
from refold.journal.talk import OpenCall
from refold.permissions.rules import narrowest
from refold.tools.contract import Tool
from refold.values.messages import ToolCall


def offered(
    found: OpenCall, made: ToolCall, tool: Tool | None, grounds: Grounds, view: View
) -> str:
    """The narrowest rule that covers this call, or "".

    `made` is the call as the model made it. A rule with a secret in it would be kept.
    """
    if tool is None or found.once or made != found.call:
        return ""
    try:
        facts = grounds.facts()
        about = touch(tool, tool.parse(made.arguments), facts)
        rule = narrowest(about, facts)
        passes = bool(rule) and judge(about, grounds, view, (rule,)).verdict == "allow"
    except (ToolFailed, BadInput):
        return ""
    return rule if passes else ""
