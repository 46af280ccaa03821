"""/context, /compact and /todos: what fills the window, telling it shorter, what is left to do."""

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.journal.fold import View
from refold.values.control import Shorter
from refold.views.checklist import checklist
from refold.views.context import context_lines, filling
from refold.views.styled import line

KINDS = ("prune", "full")
_NOTHING = "Nothing has been said yet, so there is nothing to be told shorter."


async def context(here: Conversation, rest: str) -> None:
    if rest:
        raise BadInput("/context takes no words; `refold context --json` is for programs")
    found = filling(here.session.view, here.around.window)
    here.paper.lines(context_lines(found, signs=here.paper.look.signs))


async def compact(here: Conversation, rest: str) -> None:
    """At once between turns; in a turn, at its next step."""
    kind, focus = _wanted(rest)
    if not here.session.view.talk.messages:
        raise BadInput(_NOTHING)
    if here.session.running or here.session.view.turn.seq:
        await here.session.inbox.compact(kind, focus)
        here.paper.say("The talk is told shorter at the next step.", "dim")
        return
    session, before, done = here.session, here.session.view, False

    async def shorter() -> View:
        nonlocal done
        await session.compact(kind, focus)
        done = True
        return session.view

    await here.through(shorter)
    if not done:
        here.paper.say("Stopped. The talk is as it was.", "dim")
    elif session.view.talk.size != before.talk.size:
        undo = f"/rewind {before.seq + 1} talk"
        here.paper.say(f"To have it as long as before: {undo}", "dim")


async def todos(here: Conversation, rest: str) -> None:
    items = here.session.view.talk.todos
    here.paper.lines(checklist(items, here.paper.room) or [line("There are no todos.")])


def _wanted(rest: str) -> tuple[Shorter, str]:
    """The kind, and what must not get lost."""
    head, _, more = rest.partition(" ")
    if head == "prune":
        if more.strip():
            raise BadInput(
                "/compact prune takes no focus: it only makes old results into lines"
            )
        return "prune", ""
    return "full", (more if head == "full" else rest).strip()
