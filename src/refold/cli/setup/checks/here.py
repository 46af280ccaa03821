"""What is around the person: the terminal they sit at, and the sessions they have."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Protocol, cast

from refold.cli.setup.checks.ground import CheckContext
from refold.errors import RefoldError
from refold.journal.catalogue.catalogue import NAME
from refold.journal.check import check
from refold.journal.home import Home
from refold.views.findings import Finding


class _Asks(Protocol):
    """What apsw offers, as far as we use it; its own types know less."""

    def pragma(self, name: str, /) -> object: ...


_NARROW, _LOW = 40, 8  # columns and lines that a prompt and an answer need


def terminal(ground: CheckContext) -> Iterator[Finding]:
    if not sys.stdout.isatty():
        yield Finding("terminal", "ok", "the output is no terminal: plain text is written")
        return
    from refold.cli.terminal.display.look import look

    wished = ground.told.settings.terminal
    seen = look(sys.stdout, ground.environ, wanted=wished.display, theme=wished.theme)
    wide, high = os.get_terminal_size(sys.stdout.fileno())
    name = ground.environ.get("TERM", "")
    said = (
        f"{name or 'TERM is not set'}, {wide}x{high}, {sys.stdout.encoding}, "
        f"{'colours' if seen.color else 'no colours'}, display {seen.display}"
    )
    if not name:
        yield Finding(
            "terminal", "warning", said, "set TERM: without it only text is written"
        )
    elif 0 < wide < _NARROW or 0 < high < _LOW:
        yield Finding("terminal", "warning", said, "make it larger: it is hard to read so")
    else:
        yield Finding("terminal", "ok", said)


def sessions(ground: CheckContext) -> Iterator[Finding]:
    root = ground.places.data / "sessions"
    try:
        found = list(Home(root).sessions())
    except (RefoldError, OSError) as error:
        yield Finding("sessions", "wrong", str(error))
        return
    if not found:
        yield Finding("sessions", "ok", "there are none yet")
        return
    newest = found[0]
    try:
        damages = check(newest.path).damages
    except (RefoldError, OSError) as error:
        yield Finding("sessions", "wrong", f"{newest.id} cannot be read: {error}",
            f"refold sessions check {newest.id}")  # fmt: skip
        return
    if damages:
        yield Finding("sessions", "wrong", f"{newest.id} is damaged: {damages[0]}",
            f"refold sessions check {newest.id}")  # fmt: skip
    else:
        yield Finding("sessions", "ok", f"{len(found)}, the newest ({newest.id}) is whole")
    yield from _catalogue(ground)


def _catalogue(ground: CheckContext) -> Iterator[Finding]:
    file = ground.places.data / NAME
    if not file.exists():
        return
    import apsw

    try:
        opened = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        with closing(opened):
            said = str(cast("_Asks", opened).pragma("quick_check"))
    except apsw.Error as error:
        said = str(error)
    if said == "ok":
        yield Finding(
            "sessions", "ok", f"their catalogue is whole ({file.stat().st_size:,} bytes)"
        )
    else:
        yield Finding("sessions", "warning", f"their catalogue is broken: {said}",
            "refold sessions reindex makes it anew")  # fmt: skip
