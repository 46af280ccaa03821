"""Repairs an answer of a server before the SDK reads it, so that only an invalid part is lost.

Because of one invalid tool, prompt or block, the SDK refuses the whole answer, and sometimes
the server. This module moves an invalid schema of a tool to a key that the SDK ignores
(`as_tools` checks that schema), replaces an unknown part of a result by a text that says so,
and drops an unreadable entry of a list with a notice. `message_limits` limits the size of a
message, and `results` converts a result to a reply.

The user accepts a tool by a hash of what the server sent, so a repair does not undo the
acceptance. The SDK still parses all lists, because two parsers of one protocol would differ.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

# The key of a schema that the SDK would refuse, exactly as the server sent it.
AS_SENT = "x-refold-schema-as-sent"
_LIST_KINDS: Mapping[str, tuple[str, Any]] = {
    "tools": ("tool", types.Tool),
    "prompts": ("prompt", types.Prompt),
    "resources": ("resource", types.Resource),
    "resourceTemplates": ("template of resources", types.ResourceTemplate),
}
_MAX_ENTRY_TEXT_CHARS = 200  # of the name of an entry, in a report


def repair(
    message: types.JSONRPCMessage, report: Callable[[str], None]
) -> types.JSONRPCMessage:
    """Return the message, with those parts of an answer repaired that the SDK cannot read.

    A message that is not an answer is returned unchanged. `report` is called with a sentence
    for each entry that is dropped from a list.
    """
    if not isinstance(message, types.JSONRPCResponse):
        return message
    result: dict[str, Any] = message.result
    changes = dict[str, Any]()
    for key in _LIST_KINDS:
        if isinstance(entries := result.get(key), list):
            changes[key] = _repair_list(cast("list[object]", entries), key, report)
    if "content" not in result and isinstance(result.get("task"), dict):
        # The SDK does not accept a task as the answer to a call.
        changes["content"] = []
    if "content" in result and "model" not in result:
        changes["content"] = _repair_blocks(result["content"])
    if isinstance(messages := result.get("messages"), list):
        changes["messages"] = [
            _repair_message(item) for item in cast("list[object]", messages)
        ]
    if all(changes[key] == result.get(key) for key in changes):
        return message
    return message.model_copy(update={"result": {**result, **changes}})


def schema_as_sent(schema: Mapping[str, Any]) -> object:
    """Return the schema of a tool as its server sent it, before `repair` changed it."""
    return schema.get(AS_SENT, schema)


def _repair_list(
    entries: list[object], key: str, report: Callable[[str], None]
) -> list[object]:
    """Return the valid entries of a list, and report each entry that is left out.

    Tools are repaired first. `key` is the name of the list in the result, such as "tools".
    """
    noun, type_ = _LIST_KINDS[key]
    valid_entries: list[object] = []
    for number, entry in enumerate(entries, start=1):
        repaired = _repair_tool(entry) if key == "tools" else entry
        if _is_valid(type_, repaired):
            valid_entries.append(repaired)
            continue
        fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        name = fields.get("name")
        if name:
            entry_text = f"the {noun} {name!r}"[:_MAX_ENTRY_TEXT_CHARS]
        else:
            entry_text = f"{noun} {number} of its list"
        report(f"{entry_text} is left out: it is not described as the protocol says")
    return valid_entries


def _repair_tool(entry: object) -> object:
    """Return a tool that the SDK can read: an invalid schema is replaced, fields are dropped.

    The output schema is always dropped; other fields are dropped if they are invalid. An
    `entry` that is not an object is returned unchanged.
    """
    if not isinstance(entry, dict):
        return entry
    tool = dict(cast("dict[str, Any]", entry))
    schema: object = tool.get("inputSchema")
    if not _is_sound(schema):
        tool["inputSchema"] = {"type": "object", AS_SENT: schema}
    # The SDK would check results against it, and a pattern in it can block the interpreter
    # forever. The call of a tool whose result violates its own schema has still done its
    # work.
    tool.pop("outputSchema", None)
    if not isinstance(tool.get("description", ""), str):
        del tool["description"]
    if not _is_valid(types.Tool, tool):
        tool = {
            name: tool[name]
            for name in ("name", "description", "inputSchema")
            if name in tool
        }
    return tool


def _is_sound(schema: object) -> bool:
    """Return whether the SDK accepts this value as a tool's `inputSchema`."""
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, object]", schema)
    if fields.get("type") != "object" or not isinstance(fields.get("$schema", ""), str):
        return False
    properties, required = fields.get("properties", {}), fields.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    schemas = cast("dict[str, object]", properties).values()
    names = cast("list[object]", required)
    return all(isinstance(schema, dict | bool) for schema in schemas) and all(
        isinstance(name, str) for name in names
    )


def _repair_blocks(content: object) -> list[object]:
    """Return the content of a result as readable blocks. A bare text becomes one block."""
    if isinstance(content, str):
        return [_text_block(content)]
    if not isinstance(content, list):
        return list[object]()
    return [_repair_block(block) for block in cast("list[object]", content)]


def _repair_message(message: Any) -> Any:
    """Return a prompt's message with a readable block."""
    match message:
        case {"content": str() as text}:
            return {**message, "content": _text_block(text)}
        case {"content": block}:
            return {**message, "content": _repair_block(block)}
        case _:
            return message


def _repair_block(block: object) -> object:
    """Return the block if the SDK can read it, otherwise a text in its place."""
    fields = cast("dict[str, object]", block) if isinstance(block, dict) else {}
    is_plain_text = (  # as most parts are, which saves the slower check
        fields.keys() == {"type", "text"}
        and fields["type"] == "text"
        and isinstance(fields["text"], str)
    )
    if is_plain_text or _is_valid(types.ContentBlock, cast("object", block)):
        return cast("object", block)
    kind = fields.get("type")
    return _text_block(
        f"[a part of the kind {str(kind)[:100]!r}, which cannot be read, left out]"
    )


def _text_block(text: str) -> object:
    return {"type": "text", "text": text}


def _is_valid(kind: Any, value: object) -> bool:
    """Return whether the SDK can parse the value as a `kind`, such as `types.Tool`."""
    try:
        _adapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
