"""The description that a place sends of itself, at the start and after each change.

It is not trusted: texts are escaped and cut, and an impossible path is an error.
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
_SHOWN_PATH_CHARS = 100  # the part of a wrong path that a message quotes
_MAX_PORTS = 1_000
_MAX_PORT_NUMBER = 65_535


class PlaceGreeting(Struct, frozen=True):
    """A place's description of itself, for display and for permission rules."""

    root: str
    identity: str  # if it differs, the place has lost its refold files
    home: str
    user: str
    host: str
    system: str
    python: str
    sandbox: str
    confines: bool
    notice: str
    head: str  # the text of .git/HEAD; "" if there is none
    instructions: dict[str, str]  # the instruction files for agents in the root
    has_network: bool = True
    scope: tuple[bool, str, str] | None = None  # the search scope of the root
    # installed programs among those that most sessions ask for
    programs: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()  # the ports on which programs of the user listen


class PlaceNews(Struct, frozen=True):
    """The parts of a place's description that can change. They are sent together."""

    head: str
    instructions: dict[str, str]
    scope: tuple[bool, str, str] | None
    ports: tuple[int, ...]

    def applied_to(self, greeting: PlaceGreeting) -> PlaceGreeting:
        """Return `greeting` with these parts replaced, after a check of the result."""
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
    """Return the description with printable, short texts, and without impossible ports.

    Raises `ToolFailed` for an impossible path.
    """
    for path in (greeting.root, greeting.home):
        check_path(path)
    texts = {
        name: escape_name(clean(getattr(greeting, name)))[:_MAX_TEXT_CHARS]
        for name in ("user", "host", "system", "python", "sandbox", "notice", "head")
    }
    ports = sorted({port for port in greeting.ports if 0 < port <= _MAX_PORT_NUMBER})
    return replace(greeting, **texts, ports=tuple(ports[:_MAX_PORTS]))


def check_path(path: str) -> Real:
    """Return a path that a place sent. Raises `ToolFailed` if it is impossible.

    It must be absolute, normalized and not too long.
    """
    is_normal = os.path.isabs(path) and os.path.normpath(path) == path
    if not is_normal or "\0" in path or len(path) > _MAX_PATH_CHARS:
        shown = escape_name(path[:_SHOWN_PATH_CHARS])
        raise ToolFailed(f"The place sent a path that cannot be one: {shown!r}.")
    return Real(path)
