"""Live documents on a bus: cut to its size where they are sent, joined where they arrive. Pure.

Every piece of text has its offset, so a piece that was lost, or that comes again as part of a longer
one, is noticed. What follows a lost piece is left out: the recorded response has all of it.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.client.host_ports import MAX_BUS_BYTES
from refold.client.remote_session import LIVE_TYPES
from refold.views.stream_json.live_documents import LiveDocument, TextPiece, ToolProgress

HELLO_DOCUMENT = b"{}"  # asks the worker for the text in progress
_SHARED_TYPES = {*LIVE_TYPES, "recorded", "status", "error"}
_MAX_PIECE_CHARS = MAX_BUS_BYTES // 8  # of which each may be six bytes of JSON


class DocumentHead(Struct, frozen=True):
    type: str = ""
    id: str = ""  # that of an event's document
    client_key: str = ""  # the order that it answers


def pieces_to_publish(document: bytes) -> Iterator[bytes]:
    """What other processes need of a document; those of events they make from the journal."""
    head = msgspec.json.decode(document, type=DocumentHead)
    if head.type not in _SHARED_TYPES or head.id or head.client_key:
        return
    if len(document) <= MAX_BUS_BYTES:
        yield document
    elif head.type in LIVE_TYPES:
        live = msgspec.json.decode(document, type=LiveDocument)
        if isinstance(live, TextPiece):
            for start in range(0, len(live.text), _MAX_PIECE_CHARS):
                text = live.text[start : start + _MAX_PIECE_CHARS]
                offset = live.piece.offset + start
                yield msgspec.json.encode(replace(live, text=text, offset=offset))


class ReceivedText:
    """How much of each text has arrived."""

    def __init__(self) -> None:
        self._lengths = dict[tuple[type, int, str], int]()

    def clear(self) -> None:
        """Forget all texts, between two turns."""
        self._lengths.clear()

    def new_part(self, live: LiveDocument) -> LiveDocument | None:
        """The part of a document that is new; None if nothing is, or if text before it is missing."""
        if not isinstance(live, TextPiece):
            return live
        call = live.call_id if isinstance(live, ToolProgress) else ""
        key = (type(live), live.piece.message, call)
        known, offset = self._lengths.get(key, 0), live.piece.offset
        text = live.text[max(known - offset, 0) :]
        if offset > known or not text:
            return None
        self._lengths[key] = known + len(text)
        return replace(live, text=text, offset=known)
