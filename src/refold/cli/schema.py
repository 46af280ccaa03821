"""`refold schema stream|orders`: the JSON Schema of the stdio protocol, for programs."""

from argparse import ArgumentParser, Namespace
from typing import Any

import msgspec

from refold.headless.streams import write
from refold.views.stream_json.encode import SCHEMA

SCHEMAS = ("stream", "orders")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "which",
        choices=SCHEMAS,
        help="stream: the documents printed; orders: the commands read",
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
    from refold.views.stream_json.schema import one_of, tagged

    if which == "orders":
        from refold.client.protocol import KINDS

        return one_of(
            f"orders, version {SCHEMA}",
            "One line on stdin, with --input-format stream-json.",
            KINDS,
        )
    from refold.views.stream_json import (
        documents,
        live_documents,
        snapshot,
        subagent_documents,
    )

    return one_of(
        f"documents, version {SCHEMA}",
        "One line on stdout, with --output-format stream-json; --output-format json prints "
        "the one of type result.",
        tuple(tagged(documents, subagent_documents, live_documents, snapshot)),
    )
