"""What is claimed, and where one may look whether it is so. Values only."""

from msgspec import Struct


class Evidence(Struct, frozen=True):
    """A place in a file, or what a call came to. Give a `path` or a `call`.

    `lines` are "12" or "12-20"; `quote` stands there word for word. A `call` is the id of
    one, or the command line that was run; then `quote` is what it printed.
    """

    path: str = ""
    lines: str = ""
    quote: str = ""
    call: str = ""


class Claim(Struct, frozen=True):
    """`required`: an answer with this one unsupported is not to be relied on."""

    claim: str
    evidence: tuple[Evidence, ...] = ()
    required: bool = False
