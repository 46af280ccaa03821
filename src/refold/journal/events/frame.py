"""One piece of news as watchers get it: an event, or something said between two."""

from msgspec import Struct

from refold.journal.events.kinds import Entry
from refold.values.live import Live


class Frame(Struct, frozen=True):
    """`n` numbers the live news after event `seq`; 0 is the event itself."""

    seq: int
    n: int
    item: Entry | Live
