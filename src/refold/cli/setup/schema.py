"""`refold schema stream|orders`: the JSON Schema of what goes over stdio, for programs."""

from argparse import Namespace
from typing import Any

import msgspec

from refold.cli.out import write
from refold.cli.subparsers import Subparsers
from refold.views.stream import SCHEMA

SCHEMAS = ("stream", "orders")


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("schema", help="the JSON Schema of what goes over stdio")
    parser.add_argument(
        "which", choices=SCHEMAS, help="documents that go out, or orders that come in"
    )


def run(found: Namespace) -> int:
    write(schema_text(found.which))
    return 0


def schema_text(which: str) -> str:
    """One of `SCHEMAS`, as it is printed."""
    return (
        msgspec.json.format(msgspec.json.encode(_schema(which)), indent=2).decode() + "\n"
    )


def _schema(which: str) -> dict[str, Any]:
    from refold.views.schema import one_of, tagged

    if which == "orders":
        from refold.cli.pipes.orders import KINDS

        return one_of(
            f"orders, version {SCHEMA}",
            "One line on stdin, with --input-format stream-json.",
            KINDS,
        )
    from refold.views import documents, documents_below

    return one_of(
        f"documents, version {SCHEMA}",
        "One line on stdout, with --output-format stream-json; --output-format json prints "
        "the one of type result.",
        tuple(tagged(documents, documents_below)),
    )
