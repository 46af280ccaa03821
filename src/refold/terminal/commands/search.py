"""/search: search the messages of the sessions of this directory."""

from refold.errors import BadInput
from refold.terminal.commands.resume import switch_to_one
from refold.terminal.terminal import Terminal
from refold.views.session_list import by_session, hit_lines

MOST = 20  # hits


async def run(here: Terminal, rest: str) -> None:
    if not rest:
        raise BadInput("type /search WORDS, to search the sessions of this directory")
    found = by_session(await here.session.catalogue.search(rest, MOST))
    if not found:
        here.printer.say("Nothing was found in the sessions of this directory.")
        return
    for number, of_one in enumerate(found, start=1):
        wide = len(str(len(found))) + 2
        rows = hit_lines(of_one, here.printer.room - wide, bold=False)
        for at, row in enumerate(rows):
            head = f"{'' if at else number:<{wide}}"
            here.printer.line((("accent", head), ("dim" if at else "plain", row)))
    await switch_to_one(here, [of_one[0].card.id for of_one in found])
