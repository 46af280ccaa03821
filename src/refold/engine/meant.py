"""Which tool a call means: one may be called by way of another, `tool_call`. Pure.

From here on the call is one of the tool itself, so whoever judges, runs, shows or counts
it sees that. What the model is told of its own call later is the provider's business.
"""

from collections.abc import Collection

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.values.messages import ToolCall
from refold.values.repeated import said_twice
from refold.values.tools import CALLER


class _Wrapped(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: Raw = Raw(b"{}")


def meant(call: ToolCall, tools: Collection[str]) -> ToolCall:
    """The call of one of `tools` that `call` stands for, or `call` as it is.

    What is shaped otherwise stays what it is: the tool itself tells the model why.
    """
    if call.name != CALLER:
        return call
    try:
        wrapped = msgspec.json.decode(call.arguments, type=_Wrapped)
        if said_twice(call.arguments) is not None:
            return call
        inner = _object(wrapped.arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return call
    if wrapped.name == CALLER or wrapped.name not in tools:
        return call
    return replace(call, name=wrapped.name, arguments=inner, via=CALLER)


def _object(arguments: Raw) -> Raw:
    """Raises `DecodeError` for anything but an object."""
    written = bytes(arguments)
    if written.startswith(b'"'):  # many models write an object within a text
        text = msgspec.json.decode(written, type=str).strip()
        written = msgspec.json.format(text or "{}", indent=-1).encode()
    if written == b"null":
        written = b"{}"
    msgspec.json.decode(written, type=dict[str, object])
    return Raw(written)
