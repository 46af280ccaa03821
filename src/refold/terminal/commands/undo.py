"""/undo: undo everything since the last message, or the last rewind."""

from collections.abc import Sequence

from refold.client.types import Point
from refold.errors import BadInput
from refold.terminal.commands.rewind import NOWHERE, rewind_to
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput("/undo takes no argument: /rewind N chooses the point")
    point = _last(here.session.view.checkpoints.points)
    if point is None:
        raise BadInput(NOWHERE)
    await rewind_to(here, point.seq, "both")


def _last(points: Sequence[Point]) -> Point | None:
    """The last message, or the last rewind, be it of the conversation, the files or both."""
    if not points:
        return None
    last = points[-1]
    both = last.kind == "restored" and len(points) > 1 and points[-2].seq == last.seq - 1
    return points[-2] if both and points[-2].kind == "rewound" else last
