"""/agent, /agents and /preset: who works, and with which prompt."""

from collections.abc import Iterable

from refold.agents.choosing import choose
from refold.agents.profile import unused_preset
from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.surroundings import Surroundings
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.views.cells import cells
from refold.views.escape import on_one_line

MAIN = "main"
_HOW = "A preset is chosen when a session begins: refold --preset NAME"


def choices(around: Surroundings) -> Iterable[CompletionChoice]:
    return (
        CompletionChoice(each.name, each.description)
        for each in around.agents.every("main")
    )


def presets(around: Surroundings) -> Iterable[CompletionChoice]:
    return (CompletionChoice(name, about) for name, about in around.presets())


async def agent(here: Conversation, rest: str) -> None:
    if not rest:
        here.paper.say(f"{on_one_line(_now(here))} (/agent NAME changes it)")
        return
    found = await choose(here.session.inbox, here.around.agents, rest)
    here.paper.say(f"From the next turn on: {found.name}. {found.description}", "dim")
    preset = here.around.preset
    # The one that is set for everybody was not chosen by anybody.
    if unused := unused_preset(found, "" if preset == Settings().preset else preset):
        here.paper.say(unused, "dim")


async def agents(here: Conversation, rest: str) -> None:
    there = here.around.agents
    found = there.every("main")
    now = next((each.name for each in found if each.name == _now(here)), MAIN)
    wide = max(cells(each.name) for each in found)
    for each in found:
        mark = "*" if each.name == now else " "
        pad = " " * (wide - cells(each.name))
        about = on_one_line(each.description)
        where = f"  ({on_one_line(each.where)})" if each.where else ""
        here.paper.line((
            ("accent", f"{mark} {each.name}{pad}"), ("plain", f"  {about}"), ("dim", where),
        ))  # fmt: skip
    for problem in there.problems:
        here.paper.say(on_one_line(problem), "dim")


async def preset(here: Conversation, rest: str) -> None:
    """Show those there are; with `save`, one is the default of sessions to come."""
    there = here.around.presets()
    name, _, save = rest.partition(" ")
    if not name:
        wide = max((cells(on_one_line(each)) for each, _ in there), default=0)
        for each, about in there:
            mark = "*" if each == here.around.preset else " "
            pad = " " * (wide - cells(on_one_line(each)))
            here.paper.line((
                ("accent", f"{mark} {on_one_line(each)}{pad}"),
                ("plain", f"  {on_one_line(about)}"),
            ))  # fmt: skip
        here.paper.say(f"{_HOW}; /preset NAME save makes it the default.", "dim")
        return
    if name not in [each for each, _ in there]:
        raise BadInput(_no_preset(name, [on_one_line(each) for each, _ in there]))
    if save.strip() == "save":
        here.around.remember("preset", name)
        here.paper.say(f"In every session to come: {name}", "dim")
        return
    if save:
        raise BadInput(f"say /preset, or /preset {name} save, not {rest!r}")
    here.paper.say(f"{_HOW.replace('NAME', name)}; /preset {name} save: for all.", "dim")


def _no_preset(name: str, there: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, there, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    names = ", ".join(there) or "none here"
    return f"there is no preset {name!r}. {hint}There are {names}"


def _now(here: Conversation) -> str:
    return here.session.view.about.agent or here.around.agent
