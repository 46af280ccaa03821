"""What a session is called: its name and its tags, by a person, and its title.

Part of `events`, whose rules hold here too. Which names there may be is the business of
`session.rename`, how a session is found by one that of `finding`.
"""

from msgspec import Struct

LAST = "last"  # where a session is named: the newest of the directory; nobody's name


class Renamed(Struct, frozen=True):
    """The session has this name from now on; "": none. Another may have the same."""

    name: str


class Titled(Struct, frozen=True):
    """A model found this title for what was said, when the session had been left."""

    title: str


class Tagged(Struct, frozen=True):
    """These are its tags from now on, and no others."""

    tags: tuple[str, ...]
