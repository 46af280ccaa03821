"""Which rule can be offered "for this session": one that really lets the call pass.

Pure. Where an ask rule decided, or no rule can see the whole of a command, there
is none, and only "once" is offered.
"""

from refold.cli.terminal.surroundings import Surroundings
from refold.errors import BadInput, ToolFailed
from refold.journal.fold import View
from refold.permissions.decide import Touch, decide
from refold.permissions.rules import narrowest, parse
from refold.values.messages import ToolCall


def offered(call: ToolCall, around: Surroundings, view: View) -> str:
    """The narrowest rule that covers this call, or ""."""
    tool = around.tool(call.name)
    if tool is None:
        return ""
    try:
        arguments = tool.parse(call.arguments)
        outside = around.outside(str(arguments.get(tool.path, ""))) if tool.path else None
    except ToolFailed:
        return ""
    subject = tool.touches(arguments)
    touch = Touch(
        tool.spec.name,
        tool.effect,
        tuple(s for s in (subject, outside) if s),
        outside or "",
    )
    rule = narrowest(touch.tool, outside or subject)
    try:
        given = [parse(text, "allow") for text in (*view.rights.granted, rule) if text]
    except BadInput:
        return ""
    found = decide(touch, view.rights.mode or around.mode, (*around.rules, *given))
    return rule if rule and found.verdict == "allow" else ""
