"""Splits live documents into pieces that fit a bus, and joins them again. Pure.

Every piece has its offset in the whole text. The offset shows whether an earlier piece was
lost, and which characters have arrived already. Text after a lost piece is dropped, because
the recorded response has all of the text.
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
_MAX_PIECE_CHARS = MAX_BUS_BYTES // 8  # one character may take six bytes of JSON


class DocumentHead(Struct, frozen=True):
    """The fields that every document may have and that say what it is about."""

    type: str = ""
    id: str = ""  # the id, if it is the document of an event
    client_key: str = ""  # the order that it answers


def pieces_to_publish(document: bytes) -> Iterator[bytes]:
    """Yield the document for the bus, in pieces if it is too large.

    Yield nothing for a document that no other process needs: every process makes the
    documents of events from the journal, and the answer to an order is only for the process
    that sent the order. Also yield nothing for a document that is too large and not text.
    """
    head = msgspec.json.decode(document, type=DocumentHead)
    is_of_event = bool(head.id)
    is_answer = bool(head.client_key)
    if is_of_event or is_answer or head.type not in _SHARED_TYPES:
        return
    if len(document) <= MAX_BUS_BYTES:
        yield document
        return
    if head.type not in LIVE_TYPES:
        return
    live = msgspec.json.decode(document, type=LiveDocument)
    if not isinstance(live, TextPiece):
        return
    for start in range(0, len(live.text), _MAX_PIECE_CHARS):
        text = live.text[start : start + _MAX_PIECE_CHARS]
        offset = live.piece.offset + start
        yield msgspec.json.encode(replace(live, text=text, offset=offset))


class ReceivedText:
    """Remembers how much of each text has arrived."""

    def __init__(self) -> None:
        self._lengths = dict[tuple[type, int, str], int]()

    def clear(self) -> None:
        """Forget all texts. Call it between two turns."""
        self._lengths.clear()

    def new_part(self, live: LiveDocument) -> LiveDocument | None:
        """Return the document with only the text that has not arrived yet.

        Return None if none of it is new, or if an earlier piece was lost.
        """
        if not isinstance(live, TextPiece):
            return live
        call = live.call_id if isinstance(live, ToolProgress) else ""
        key = (type(live), live.piece.message, call)
        received = self._lengths.get(key, 0)
        offset = live.piece.offset
        if offset > received:  # the piece between them was lost
            return None
        new_text = live.text[received - offset :]
        if not new_text:
            return None
        self._lengths[key] = received + len(new_text)
        return replace(live, text=new_text, offset=received)
