"""/tree, /background and /stop: the children that work for this session, and their end."""

from msgspec.structs import replace

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.session.hub import Hub
from refold.values.live import ChildMoved
from refold.views.escape import on_one_line
from refold.views.family import family_lines


async def tree(here: Conversation, rest: str) -> None:
    if rest:
        raise BadInput(f"say /tree, not /tree {rest}: refold tree shows any session")
    moved = await _moved(here.session.hub)
    here.paper.lines(family_lines(here.session.view.family, moved, here.paper.room))


async def background(here: Conversation, rest: str) -> None:
    """Only those that work beside the talk, and have not ended."""
    if rest:
        raise BadInput(f"say /background, not /background {rest}: /stop NAME ends one")
    family = here.session.view.family
    beside = tuple(each for each in family.running if each.born.beside)
    if not beside:
        here.paper.say("Nothing works in the background.")
        return
    moved = await _moved(here.session.hub)
    only = replace(family, children=beside)
    here.paper.lines(family_lines(only, moved, here.paper.room))


async def stop(here: Conversation, rest: str) -> None:
    """Without a name, all of them; the turn goes on either way."""
    name = rest.strip()
    running = [each.name for each in here.session.view.family.running]
    if not running:
        raise BadInput("no child is at work")
    if name and name not in running:
        shown = ", ".join(running)
        raise BadInput(f"no child {on_one_line(name)!r} is at work here; there is {shown}")
    if not await here.session.inbox.stop_child(name):
        here.paper.say("That was said already: it ends as soon as it can.", "dim")
        return
    who = name or ", ".join(running)
    here.paper.say(f"To be stopped, with all below: {who}", "dim")


async def _moved(hub: Hub) -> dict[str, ChildMoved]:
    """The newest news of each child at work: what somebody is told who watches from now on."""
    watch = hub.watch()
    watch.close()
    found = [frame.item async for frame in watch.frames()]
    return {item.node: item for item in found if isinstance(item, ChildMoved)}
