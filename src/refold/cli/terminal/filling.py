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
    here.screen.lines(context_lines(found, signs=here.screen.look.signs))


async def compact(here: Conversation, rest: str) -> None:
    """At once between turns; in a turn, at its next step."""
    kind, focus = _wanted(rest)
    if not here.session.view.talk.messages:
        raise BadInput(_NOTHING)
    if here.session.running or here.session.view.turn.seq:
        await here.session.inbox.compact(kind, focus)
        here.screen.say("The talk is told shorter at the next step.", "dim")
        return
    session, before = here.session, here.session.view.talk.size

    async def shorter() -> View:
        await session.compact(kind, focus)
        return session.view

    await here.through(shorter)
    if session.view.talk.wanted is not None:
        here.screen.say("Stopped. It is told shorter when the next turn begins.", "dim")
    elif session.view.talk.size == before:
        here.screen.say("It is told as short as it can be already.", "dim")


async def todos(here: Conversation, rest: str) -> None:
    items = here.session.view.talk.todos
    here.screen.lines(checklist(items, here.screen.room) or [line("There are no todos.")])


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
