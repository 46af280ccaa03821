"""What only the command line of a start, or a program, said of how its turns go.

Rules and bounds that no file holds, so that nobody could look them up later. They hold
until the session is left; whoever takes it up gives them again, or does not. How they come
out of the settings and go back there is the business of `config.given`.
"""

from msgspec import Struct

from refold.values.rights import Mode


class Given(Struct, frozen=True, omit_defaults=True):
    """Rules as they were written; None and 0: nothing was said."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    steps: int = 0
    dollars: float = 0.0


NOTHING = Given()
