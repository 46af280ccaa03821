"""`refold schema stream|orders`: prints the JSON Schema of the stdio protocol.

docs/schema contains the same schemas. In a document of the stream, additional fields are valid,
because a reader should accept them. In an order, they are invalid.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct

from refold.headless.streams import write
from refold.views.stream_json.encode import SCHEMA_VERSION

SCHEMA_NAMES = ("stream", "orders")
_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "which",
        choices=SCHEMA_NAMES,
        help="stream: the documents printed; orders: the commands read",
    )


def run(args: Namespace) -> int:
    write(schema_text(args.which))
    return 0


def schema_text(name: str) -> str:
    """Return the schema `name`, one of `SCHEMA_NAMES`, as the command prints it."""
    return msgspec.json.format(msgspec.json.encode(_schema(name)), indent=2).decode() + "\n"


def _schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of the orders if `name` is "orders", else of the documents."""
    if name == "orders":
        from refold.client.protocol import ORDER_KINDS

        return _union_schema(
            f"orders, version {SCHEMA_VERSION}",
            "One line on stdin, with --input-format stream-json.",
            ORDER_KINDS,
        )
    from refold.views.stream_json import (
        documents,
        live_documents,
        snapshot,
        subagent_documents,
    )

    return _union_schema(
        f"documents, version {SCHEMA_VERSION}",
        "One line on stdout, with --output-format stream-json; --output-format json prints "
        "the one of type result.",
        tuple(document_types(documents, subagent_documents, live_documents, snapshot)),
    )


def _union_schema(title: str, about: str, kinds: Sequence[type[Struct]]) -> dict[str, Any]:
    """Return a schema for an object of one of `kinds`. Its field "type" names the kind."""
    refs, definitions = msgspec.json.schema_components(
        kinds, schema_hook=_any_json_schema, ref_template="#/$defs/{name}"
    )
    return {
        "$schema": _SCHEMA_DIALECT,
        "title": title,
        "description": about,
        "oneOf": list(refs),
        "$defs": dict(sorted(definitions.items())),
    }


def document_types(*modules: ModuleType) -> Iterator[type[Struct]]:
    """Yield each document type of these modules, in source order."""
    for module in modules:
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, Struct)):
                continue
            is_imported = value.__module__ != module.__name__
            # the class of a document sets its `type`, which differs from the name of the class
            has_type = value.__struct_config__.tag not in (None, value.__name__)
            if has_type and not is_imported:
                yield value


def _any_json_schema(kind: type) -> dict[str, Any]:
    """Return the schema for a value that may be any JSON, such as the arguments of a tool.

    The schema has only a description, because an empty schema would look like a missing one.
    """
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
