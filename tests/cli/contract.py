"""Checks stdout against what the formats promise. For tests that run refold."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from refold.cli.schema import schema_text

Document = dict[str, Any]
_BESIDE = {"at", "by", "cause"}  # `sessions show --json` puts the envelope beside it


def documents(text: str) -> list[Document]:
    """One JSON object a line, each as the schema has it, and nothing else."""
    assert text == "" or text.endswith("\n"), f"half a line: {text[-80:]!r}"
    return [check_document(json.loads(line)) for line in text.splitlines()]


def check_document(document: Document) -> Document:
    """The same, if it has the fields that its type promises, and no other."""
    validator = _validators()[document["type"]]
    problems = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(document)]
    assert problems == [], (problems, document)
    return document


@cache
def _validators() -> dict[str, Draft202012Validator]:
    schema = json.loads(schema_text("stream"))
    data: dict[str, Draft202012Validator] = {}
    for item in schema["oneOf"]:
        name = item["$ref"].rpartition("/")[2]
        fields = schema["$defs"][name]["properties"]
        closed = {**item, "propertyNames": {"enum": [*fields, *_BESIDE]}}
        (type_,) = fields["type"]["enum"]
        data[type_] = Draft202012Validator({**closed, "$defs": schema["$defs"]})
    return data
