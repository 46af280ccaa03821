"""The grammar of one call, for llama.cpp: what a small model may write, letter by letter.

A JSON schema would do the same except for blanks: with one, models write each brace and key
on its own line, and a third of their tokens are blanks. Here a call is one line, as
`embedded` shows it to them. (Without any blank it would have fewer tokens still, and worse
patterns.) A tool whose arguments are more than plain values has no grammar; `embedded` sends
the schema then.
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
    """The grammar of one call of one of `tools`; "" if only a schema can describe it."""
    calls = [_call_rule(tool) for tool in tools]
    if not calls or not all(calls):
        return ""
    opening = _literal('{"tool": "')
    rules = [f"root ::= {opening} ({' | '.join(calls)})"]
    return "\n".join(
        [*rules, *(f"{name} ::= {rule}" for name, rule in _VALUE_RULES.items())]
    )


def _call_rule(tool: ToolSpec) -> str:
    schema: Mapping[str, Any] = msgspec.json.decode(tool.parameters)
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    values = {name: _value(about) for name, about in properties.items()}
    required = [name for name in properties if name in schema.get("required", ())]
    if not required or not all(values.values()):
        return ""
    members = [f"{_literal(f'{_json(name)}: ')} {values[name]}" for name in required]
    others = [
        f"({_literal(f', {_json(name)}: ')} {values[name]})?"
        for name in properties
        if name not in required
    ]
    opening = _literal(f'{tool.name}", "arguments": {{')
    return " ".join([opening, f" {_literal(', ')} ".join(members), *others, _literal("}}")])


def _value(schema: Mapping[str, Any]) -> str:
    """The rule of a plain value; "" if it is none."""
    if set(schema) - _KNOWN_KEYWORDS:
        return ""
    if "enum" in schema:
        return f"({' | '.join(_literal(_json(value)) for value in schema['enum'])})"
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _VALUE_RULES else ""


def _literal(text: str) -> str:
    return _json(text)  # the escapes of JSON are those of the grammar


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
