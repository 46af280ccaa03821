"""Generates the reference of the stream: each document and each order, from its type."""

from collections.abc import Iterable
from types import ModuleType

from msgspec import Struct

from refold.cli.schema import document_types
from refold.client.protocol import ORDER_KINDS
from refold.views.stream_json import (
    documents,
    live_documents,
    snapshot,
    subagent_documents,
)

# Base classes, whose fields are described once for all documents or all orders.
COMMON_TYPES = {"Placed", "Written", "_Live", "_Order"}
STATE_TYPES = (snapshot.Status, snapshot.Snapshot, snapshot.History)
OTHER_AGENTS_TYPES = {"user", "message"}


def event_documents() -> str:
    """Return the documents that are neither live news nor a state; most are about events."""
    kinds = types_of(documents, subagent_documents, snapshot)
    return table(kind for kind in kinds if kind not in STATE_TYPES)


def live() -> str:
    """Return the documents of live news."""
    return table(types_of(live_documents))


def states() -> str:
    """Return the documents with the state of a session."""
    return table(STATE_TYPES)


def orders() -> str:
    """Return the orders that a program can send."""
    return table(kind for kind in ORDER_KINDS if tag(kind) not in OTHER_AGENTS_TYPES)


def types_of(*modules: ModuleType) -> list[type[Struct]]:
    return list(document_types(*modules))


def table(kinds: Iterable[type[Struct]]) -> str:
    return "\n".join(["| `type` | fields | |", "|---|---|---|", *map(row, kinds)])


def row(kind: type[Struct]) -> str:
    own = {
        name
        for base in kind.__mro__
        if base.__name__ not in COMMON_TYPES
        for name in vars(base).get("__annotations__", ())
    }
    fields = [
        f"`{encoded}`"
        for name, encoded in zip(
            kind.__struct_fields__, kind.__struct_encode_fields__, strict=True
        )
        if name in own
    ]
    about = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
    return f"| `{tag(kind)}` | {', '.join(fields)} | {about} |"


def tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)
