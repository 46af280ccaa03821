"""/preset: list the system prompts of the agent main, and set the default."""

from collections.abc import Iterable

from refold.client.session import Session
from refold.errors import BadInput
from refold.terminal.input.completion import CompletionChoice
from refold.terminal.terminal import Terminal
from refold.values.similar_names import similar
from refold.views.escape import on_one_line
from refold.views.wrap import cells

_HOW = "A preset is chosen when a session starts: refold --preset NAME"


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (CompletionChoice(name, about) for name, about in session.agents.presets())


async def run(here: Terminal, rest: str) -> None:
    there = here.session.agents.presets()
    name, _, save = rest.partition(" ")
    if not name:
        _list(here)
        return
    if name not in [each for each, _ in there]:
        raise BadInput(_no_preset(name, [on_one_line(each) for each, _ in there]))
    if save.strip() == "save":
        here.session.config.remember("preset", name)
        here.printer.say(f"The default of new sessions: {name}", "dim")
    elif save:
        raise BadInput(f"type /preset, or /preset {name} save, not {rest!r}")
    else:
        how = _HOW.replace("NAME", name)
        here.printer.say(f"{how}; /preset {name} save makes it the default.", "dim")


def _list(here: Terminal) -> None:
    there = here.session.agents.presets()
    wide = max((cells(on_one_line(each)) for each, _ in there), default=0)
    for each, about in there:
        mark = "*" if each == here.session.agents.preset else " "
        pad = " " * (wide - cells(on_one_line(each)))
        here.printer.line((
            ("accent", f"{mark} {on_one_line(each)}{pad}"),
            ("plain", f"  {on_one_line(about)}"),
        ))  # fmt: skip
    here.printer.say(f"{_HOW}; /preset NAME save makes it the default.", "dim")


def _no_preset(name: str, there: list[str]) -> str:
    near = similar(name, there, 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    names = ", ".join(there) or "none"
    return f"there is no preset {name!r}. {hint}Available: {names}"
