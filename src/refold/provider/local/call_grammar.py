"""Makes a grammar of one tool call, with which llama.cpp restricts the output of a small model.

A JSON schema would do the same except for white space: with a schema, models write each brace
and key on its own line, and a third of their tokens are blanks. With the grammar a call is one
line, in the form that `embedded` shows to the models. (Without any blanks a call would have
even fewer tokens, but models write worse patterns.) A tool whose arguments are more than plain
values has no grammar; for such a tool `embedded` sends the schema.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from refold.values.tools import ToolSpec

_VALUE_RULES = {
    "string": r'"\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""',
    "boolean": '"true" | "false"',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": '"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})?',
}
_KNOWN_KEYWORDS = frozenset(("type", "enum", "description", "default", "title"))


def call_grammar(tools: Sequence[ToolSpec]) -> str:
    """Return the grammar of one call of any of `tools`.

    Return "" if there are none, or if one of them needs a schema.
    """
    call_rules = [_call_rule(tool) for tool in tools]
    if not call_rules or "" in call_rules:
        return ""
    opening = _literal('{"tool": "')
    root_rule = f"root ::= {opening} ({' | '.join(call_rules)})"
    value_rules = (f"{name} ::= {rule}" for name, rule in _VALUE_RULES.items())
    return "\n".join([root_rule, *value_rules])


def _call_rule(tool: ToolSpec) -> str:
    """Return the grammar of a call from the tool's name on; "" if the tool needs a schema.

    A tool needs a schema if it has no required argument, or an argument that is not a plain
    value. Required arguments come first. Each optional argument after them may be missing.
    """
    schema: Mapping[str, Any] = msgspec.json.decode(tool.parameters)
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    values = {name: _value_rule(property_) for name, property_ in properties.items()}
    required = [name for name in properties if name in schema.get("required", ())]
    optional = [name for name in properties if name not in required]
    if not required or "" in values.values():
        return ""
    opening = _literal(f'{tool.name}", "arguments": {{')
    separator = _literal(", ")
    required_rules = [f"{_literal(_json(name) + ': ')} {values[name]}" for name in required]
    optional_rules = [
        f"({_literal(', ' + _json(name) + ': ')} {values[name]})?" for name in optional
    ]
    members = f" {separator} ".join(required_rules)
    return " ".join([opening, members, *optional_rules, _literal("}}")])


def _value_rule(schema: Mapping[str, Any]) -> str:
    """Return the grammar of a plain value, or "" if `schema` is not that of a plain value."""
    if set(schema) - _KNOWN_KEYWORDS:
        return ""
    if "enum" in schema:
        return f"({' | '.join(_literal(_json(value)) for value in schema['enum'])})"
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _VALUE_RULES else ""


def _literal(text: str) -> str:
    return _json(text)  # the grammar has the same escapes as JSON


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
