"""/vi: the keys of vi at the prompt, or those of Emacs, for this run."""

from collections.abc import Mapping

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput

_WANTED: Mapping[str, bool | None] = {"": None, "on": True, "off": False}


async def vi(here: Conversation, rest: str) -> None:
    """Change between them, or to what is said."""
    if rest not in _WANTED:
        raise BadInput(f"/vi is on, off or nothing, which changes it: not {rest!r}")
    match here.vi(_WANTED[rest]):
        case None:
            raise BadInput("there is no line editor in this display: the terminal has it")
        case True:
            here.paper.say("The keys are those of vi: Esc, then its commands.", "dim")
        case False:
            here.paper.say("The keys are those of Emacs.", "dim")
