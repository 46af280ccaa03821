"""The form of an exported session: one JSON document, with its lines in fixed places.

    {"format":"refold session","version":1,"refold":…,"id":…,"sessions":[
    {"name":"","events":[
    …                              the lines of the journal, byte for byte
    ],"blobs":{
    "<sha256>":[
    "…"                            base64, in pieces
    ]
    }},
    {"name":"child-1","events":[   each child after what it was born in
    …
    ],"sessions_in_all":2,"events_in_all":31,"blobs_in_all":4}

Any program can read it as JSON; we read it by its lines, for their bytes are what the
journal's hashes are of. So nothing large is ever held in memory, and a file that was
formatted anew is not read. Written in `packing`, read in `unpacking`.
"""

from msgspec import Struct

FORMAT = "refold session"
VERSION = 1

OPEN = b"["  # ends the first line
EVENTS_END = b'],"blobs":{'
BLOB_END = b"]"
SESSION_END = b"}}"

PIECE = 3 << 18  # bytes of a blob on one line; divides by 3, so that base64 joins
LONGEST_LINE = 64_000_000  # bytes; the longest a session has, and none that fills a memory
LONGEST_START = 64_000  # of the first line, and of those that are not content
LAST_MOMENT = 253_402_300_800.0  # the year 10,000, after which no calendar goes


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands first. `id` is that of the session at the top."""

    format: str
    version: int
    refold: str
    id: str
    sessions: list[int] = []  # they follow on their own lines


class Counts(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands last: so a file that was cut off is known."""

    sessions_in_all: int
    events_in_all: int
    blobs_in_all: int
