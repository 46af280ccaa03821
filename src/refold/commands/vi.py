"""/vi: switch between vi and Emacs keys, for this run."""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext, terminal_of
from refold.errors import BadInput
from refold.views.styled import line

_VI_SETTINGS: Mapping[str, bool | None] = {"": None, "on": True, "off": False}


async def run(here: CommandContext, rest: str) -> None:
    """Switch to vi or Emacs keys; without an argument, toggle."""
    if rest not in _VI_SETTINGS:
        raise BadInput(f"type /vi, /vi on or /vi off, not {rest!r}")
    match terminal_of(here, "/vi").use_vi_keys(_VI_SETTINGS[rest]):
        case None:
            raise BadInput("this display has no line editor, so it has no vi keys")
        case True:
            here.show(line("vi keys: Esc, then a command.", "dim"))
        case False:
            here.show(line("Emacs keys.", "dim"))
