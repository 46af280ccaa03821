"""What the model is shown, from the view and nothing else. Pure.

Every call goes out with a result, whatever happened to it: one that has none
yet is said to be under way. How it looks on a wire is the provider's business.
"""

from refold.journal.fold import View
from refold.provider.port import Request
from refold.values.messages import Message, Spoken, Text, ToolResult

UNDER_WAY = "Still under way."
GO_ON = Message("user", (Text("<reminder>Go on.</reminder>"),))


def build_request(view: View) -> Request:
    talk, asking = view.talk, view.turn.asking
    messages, briefed = talk.messages, talk.briefed
    if talk.calls:
        so_far = (c.result or ToolResult(c.call.id, UNDER_WAY) for c in talk.calls)
        messages = messages.plus(Spoken(0, Message("tool", tuple(so_far))))
    if not messages or messages[-1].message.role == "assistant":
        messages = messages.plus(Spoken(0, GO_ON))  # no provider answers itself
    choice = "none" if asking is not None and not asking.tools else "auto"
    return Request(
        messages,
        briefed.system,
        briefed.tools,
        briefed.model.partition("/")[2],
        choice,
        max_output=briefed.output,
        effort=briefed.effort,
        schema=briefed.schema,
        session=view.about.id,
    )
