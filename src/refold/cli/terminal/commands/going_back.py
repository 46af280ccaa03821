"""/rewind, /undo and /fork: the talk, the files or both as they were before something was said.

What would change is shown, and done only after a yes. What going back means is
`session.rewinding`'s business.
"""

from collections.abc import Mapping, Sequence

import anyio

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.journal.saved import Point
from refold.place.port import Snapshots
from refold.session.rewinding import plan, preview, rewind, steps
from refold.views.rewind import What, listed, previewed, reported

_WHAT: Mapping[str, What] = {"": "both", "both": "both", "talk": "talk", "files": "files"}
_NOWHERE = "Nothing was said in this session, so there is nowhere to go back to."


async def rewind_to(here: Conversation, rest: str) -> None:
    """The points there are; or back to before one of them."""
    if not rest:
        view = here.session.view
        snapshots = here.around.snapshots(view)
        found = await anyio.to_thread.run_sync(steps, view, snapshots)
        here.paper.lines(listed(found, here.paper.room))
        here.paper.say("/rewind N goes back to before N" if found else _NOWHERE, "dim")
        return
    number, _, what = rest.partition(" ")
    wanted = _WHAT.get(what.strip())
    if not number.isdecimal() or wanted is None:
        raise BadInput(f"say /rewind, or /rewind N [talk|files|both], not {rest!r}")
    await _back(here, int(number), wanted)


async def fork(here: Conversation, rest: str) -> None:
    """Go over to a copy of this session: of all of it, or up to an event."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"say /fork, or /fork EVENT with its number, not {rest!r}")
    left = here.session.view
    made = await here.around.fork(left, int(rest) if rest else None)
    at = made.view.about.forked[1]
    await here.change(made, f"It is a copy of {left.about.id} up to event {at}.")


async def undo(here: Conversation, rest: str) -> None:
    """Take back what was done since the last words; or the last going back."""
    if rest:
        raise BadInput("/undo takes no words: /rewind chooses where to go back to")
    point = _last(here.session.view.saved.points)
    if point is None:
        raise BadInput(_NOWHERE)
    await _back(here, point.seq, "both")


def _last(points: Sequence[Point]) -> Point | None:
    """The last words, or the last going back, be it of the talk, the files or both."""
    if not points:
        return None
    last = points[-1]
    both = last.kind == "restored" and len(points) > 1 and points[-2].seq == last.seq - 1
    return points[-2] if both and points[-2].kind == "rewound" else last


async def _back(here: Conversation, seq: int, what: What) -> None:
    snapshots = here.around.snapshots(here.session.view)
    if snapshots is None:
        await _talk_back(here, seq, what)
        return
    found = await preview(here.session.view, snapshots, seq, what)
    directory, paper = here.session.view.about.directory, here.paper
    paper.lines(previewed(found, directory, paper.room))
    if not (found.plan.mark or found.changes):
        paper.say("Nothing would change.", "dim")
        return
    question = "Go back? y/n"
    if found.drift:
        question = "Go back, and take back what somebody else changed, too? y/n"
    if await here.ask(question, "yn") != "y":
        paper.say("Nothing was changed.", "dim")
        return
    await _done(here, snapshots, seq, what, force=bool(found.drift))


async def _done(
    here: Conversation, snapshots: Snapshots, seq: int, what: What, *, force: bool
) -> None:
    report = await rewind(here.session, snapshots, seq, what, force=force)
    way = f"/rewind {report.undo}" if what == "both" else f"/rewind {report.undo} {what}"
    here.paper.say(reported(report, way), "good" if report.undo else "dim")


async def _talk_back(here: Conversation, seq: int, what: What) -> None:
    """Without snapshots only the talk can go back."""
    if what == "files":
        raise BadInput("no files are taken down here, so only the talk can go back")
    mark = plan(here.session.view, seq, "talk").mark
    here.paper.say("Files are not taken down here: only the talk goes back.", "warn")
    if await here.ask("Go back? y/n", "yn") != "y":
        here.paper.say("Nothing was changed.", "dim")
    elif await here.session.rewind(mark):
        undo_it = here.session.view.seq
        here.paper.say(
            f"The talk is as before. To undo this: /rewind {undo_it} talk", "good"
        )
