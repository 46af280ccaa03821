"""/vi: switch between vi and Emacs keys, for this run."""

from collections.abc import Mapping

from refold.errors import BadInput
from refold.terminal.terminal import Terminal

_WANTED: Mapping[str, bool | None] = {"": None, "on": True, "off": False}


async def run(here: Terminal, rest: str) -> None:
    """Without an argument, switch to the other."""
    if rest not in _WANTED:
        raise BadInput(f"type /vi, /vi on or /vi off, not {rest!r}")
    match here.reader.vi(_WANTED[rest]):
        case None:
            raise BadInput("this display has no line editor, so it has no vi keys")
        case True:
            here.printer.say("vi keys: Esc, then a command.", "dim")
        case False:
            here.printer.say("Emacs keys.", "dim")
