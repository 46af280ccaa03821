"""Checks the stdout of refold against the schema of its documents."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from refold.cli.schema import schema_text

Document = dict[str, Any]
_BESIDE = {"at", "by", "cause"}  # fields that `sessions show --json` adds to a document


def documents(text: str) -> list[Document]:
    """Return the JSON objects, one on each line. Each must match the schema."""
    assert text == "" or text.endswith("\n"), f"half a line: {text[-80:]!r}"
    return [check_document(json.loads(line)) for line in text.splitlines()]


def check_document(document: Document) -> Document:
    """Return the document. Fail unless it has the fields of its type, and no other fields."""
    validator = _validators()[document["type"]]
    problems = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(document)]
    assert problems == [], (problems, document)
    return document


@cache
def _validators() -> dict[str, Draft202012Validator]:
    schema = json.loads(schema_text("stream"))
    validators: dict[str, Draft202012Validator] = {}
    for item in schema["oneOf"]:
        name = item["$ref"].rpartition("/")[2]
        fields = schema["$defs"][name]["properties"]
        closed = {**item, "propertyNames": {"enum": [*fields, *_BESIDE]}}
        (type_,) = fields["type"]["enum"]
        validators[type_] = Draft202012Validator({**closed, "$defs": schema["$defs"]})
    return validators
