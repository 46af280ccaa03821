"""/skills, /memory, /note and `/name words`: what the session knows beside the talk.

Skills and templates are found in `skills`, notes kept in `memory`: here they are shown,
chosen, written and forgotten.
"""

from collections.abc import Iterable

import anyio

from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.surroundings import Surroundings
from refold.errors import BadInput, ToolFailed
from refold.hall.remembering import Remembering
from refold.memory.store import Listed
from refold.skills.shortcuts import Shortcuts
from refold.views.cells import cells, cut
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line, line

MEMORY = ("show", "forget", "update")
_OFF = "memory is off here: it was started with --no-memory, or memory = false is set"


def named(around: Surroundings) -> Iterable[CompletionChoice]:
    if around.skills is not None:
        for each in around.skills.found.skills:
            yield CompletionChoice(each.name, each.description)


async def skills(here: Conversation, rest: str) -> None:
    """All there are, or one of them whole."""
    catalogue = here.around.skills
    if catalogue is None:
        raise BadInput("skills are off here: skills = false is set")
    if rest:
        try:
            text = await anyio.to_thread.run_sync(
                catalogue.told, catalogue.skill(rest).name
            )
        except ToolFailed as error:
            raise BadInput(str(error)) from error
        here.paper.say(visible(text).rstrip("\n"))
        return
    offered = here.around.shortcuts.offered() if here.around.shortcuts else ()
    if not offered:
        here.paper.say("There are no skills and no templates.")
    heads = [on_one_line(f"{each.name} {each.usage}".strip()) for each in offered]
    wide = max(map(cells, heads), default=0)
    for head, each in zip(heads, offered, strict=True):
        here.paper.line(_offered(head, wide, each.about, here.paper.room))


async def memory(here: Conversation, rest: str) -> None:
    what, _, more = rest.partition(" ")
    match what:
        case "" | "show" if not more:
            _show(_of(here), here)
        case "forget" if more.strip():
            gone = await anyio.to_thread.run_sync(_of(here).memory.forget, more.strip())
            for text in dict.fromkeys(each.line.text for each in gone):
                here.paper.say(f"forgotten: {on_one_line(text)}", "dim")
        case "update" if not more:
            _of(here)
            await _update(here)
        case _:
            raise BadInput("say /memory, /memory forget NUMBER or words, or /memory update")


async def note(here: Conversation, rest: str) -> None:
    said = await anyio.to_thread.run_sync(_of(here).note, rest)
    here.paper.say(on_one_line(said), "dim")


async def expanded(here: Conversation, shortcuts: Shortcuts, name: str, rest: str) -> str:
    """What is said instead of `/name rest`. What is missing is asked for."""
    answers = dict[str, str]()
    for slot in shortcuts.missing(name, rest):
        answers[slot] = await here.ask_words(f"{on_one_line(slot)}:")
        if not answers[slot].strip():
            raise BadInput(f"/{name} needs {slot}: nothing was said")
    return await anyio.to_thread.run_sync(shortcuts.expanded, name, rest, answers)


def _of(here: Conversation) -> Remembering:
    if here.around.remembering is None:
        raise BadInput(_OFF)
    return here.around.remembering


def _show(remembering: Remembering, here: Conversation) -> None:
    notes = remembering.memory.listed()
    if not notes:
        here.paper.say("Nothing is remembered here yet. #words remembers them.")
    before = ("", "")
    for each in notes:
        if (each.whose, each.line.section) != before:
            before = (each.whose, each.line.section)
            about = " (about you)" if each.whose == "person" else ""
            here.paper.say(f"{on_one_line(each.line.section) or 'Notes'}{about}", "strong")
        here.paper.line(_note(each))
    if notes:
        here.paper.say("/memory forget NUMBER forgets one for good", "dim")


def _note(each: Listed) -> Line:
    return (("dim", f"  {each.number:>3}  "), ("plain", on_one_line(each.line.text)))


async def _update(here: Conversation) -> None:
    here.paper.say("Reading what was said …", "dim")
    learned = await here.around.learn(here.session)
    for change in learned.changes:
        text = f"{change.sign} {on_one_line(change.section)}: {on_one_line(change.text)}"
        here.paper.say(text, "added" if change.sign == "+" else "gone")
    if not learned.changes:
        why = f": {learned.why}" if learned.why else "."
        here.paper.say(f"Nothing new to remember{why}", "dim")


def _offered(head: str, wide: int, about: str, room: int) -> Line:
    pad = wide - cells(head) if wide <= room // 2 else 0
    left = max(room - cells(head) - pad - 4, 10)
    return (
        ("accent", f"  {head}{'':{pad}}"),
        *line(f"  {cut(on_one_line(about), left)}", "dim"),
    )
