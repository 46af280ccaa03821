"""What a place says of itself: when it is greeted, and again when it has changed.

It is not trusted: texts are escaped and cut, and a path that cannot be one is an error.
"""

import os

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Real
from refold.values.printable_names import escape_name
from refold.values.text import clean

_MAX_TEXT_CHARS = 500
_MAX_PATH_CHARS = 4_096
_MAX_PORTS = 1_000
_LARGEST_PORT = 65_535


class PlaceGreeting(Struct, frozen=True):
    """What a place says of itself. It is for showing, and for rules about its own paths."""

    root: str
    identity: str  # another one: the place has lost its files of refold
    home: str
    user: str
    host: str
    system: str
    python: str
    sandbox: str
    confines: bool
    notice: str
    head: str  # the text of .git/HEAD; "" if there is none
    instructions: dict[str, str]  # the files of the root for agents
    has_network: bool = True
    scope: tuple[bool, str, str] | None = None  # of a search in the root
    programs: tuple[str, ...] = ()  # those there that most sessions ask for
    ports: tuple[int, ...] = ()  # on which programs of the user listen


class PlaceNews(Struct, frozen=True):
    """What a place says again when it has changed."""

    head: str
    instructions: dict[str, str]
    scope: tuple[bool, str, str] | None
    ports: tuple[int, ...]

    def applied_to(self, greeting: PlaceGreeting) -> PlaceGreeting:
        return check_greeting(
            replace(
                greeting,
                head=self.head,
                instructions=self.instructions,
                scope=self.scope,
                ports=self.ports,
            )
        )


def check_greeting(greeting: PlaceGreeting) -> PlaceGreeting:
    """The greeting with texts that can be shown, and possible ports.

    Raises `ToolFailed` for an impossible path.
    """
    for path in (greeting.root, greeting.home):
        check_path(path)
    texts = {
        name: escape_name(clean(getattr(greeting, name)))[:_MAX_TEXT_CHARS]
        for name in ("user", "host", "system", "python", "sandbox", "notice", "head")
    }
    ports = sorted({port for port in greeting.ports if 0 < port <= _LARGEST_PORT})
    return replace(greeting, **texts, ports=tuple(ports[:_MAX_PORTS]))


def check_path(path: str) -> Real:
    """An absolute path from a place. Raises `ToolFailed` for another text."""
    usual = os.path.isabs(path) and os.path.normpath(path) == path and "\0" not in path
    if not usual or len(path) > _MAX_PATH_CHARS:
        raise ToolFailed("The place sent a path that cannot be one.")
    return Real(path)
