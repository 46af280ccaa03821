"""`refold schema stream|orders`: the JSON Schema of the stdio protocol, for programs.

docs/schema contains it. Documents with additional fields are valid, as a reader should
accept them; an order with an unknown field is not.
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
    """Return the schema of this name, one of `SCHEMA_NAMES`, as it is printed."""
    return msgspec.json.format(msgspec.json.encode(_schema(name)), indent=2).decode() + "\n"


def _schema(name: str) -> dict[str, Any]:
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
    """A schema for one object that is any of these; "type" says which."""
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
    """Yield each type of these modules that is a document of its own, in source order."""
    for module in modules:
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Struct)
                and value.__module__ == module.__name__
                and value.__struct_config__.tag not in (None, value.__name__)
            ):
                yield value


def _any_json_schema(kind: type) -> dict[str, Any]:
    """Return the schema of `object`, as of the arguments of a tool: any JSON.

    It has a description, because an empty schema would be taken for none.
    """
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(kind)
