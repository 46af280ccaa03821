"""A place where it was found. How it looks in a line is `views.session_list`'s business."""

from msgspec import Struct

from refold.journal.catalogue.session_card import Card

FOUND, ENDS = "\x02", "\x03"  # stand around the words; no text that is kept holds them


class Hit(Struct, frozen=True):
    """The event `seq` of a session, and a snippet of what `who` said in it."""

    card: Card
    seq: int
    who: str
    snippet: str
