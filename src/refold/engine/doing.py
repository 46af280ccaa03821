"""A call is done: what was judged, by the rights of this moment, and nothing else.

Its files are saved before it may change any. What its tool says is made fit to be
recorded in `result`; whether it is to be done at all was decided before.
"""

from collections.abc import Mapping

from msgspec import Struct

from refold.engine.judging import fingerprint, judge, mode_of, touch
from refold.engine.result import Running, ended
from refold.engine.saving import save
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events import Ended
from refold.journal.talk import OpenCall
from refold.place.port import Files
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect

SECRET = (
    "Interrupted, and not repeated: its arguments held a secret that is not kept. "
    "It may or may not have happened: look first."
)
ELSEWHERE = (
    "Not done: what it names leads elsewhere by now than when it was allowed. A link or "
    "a folder has changed. Look, and call again."
)


class Readied(Struct, frozen=True):
    """What the house has for one call alone, and whether it may change files."""

    house: Mapping[str, object]
    writes: bool


async def do(found: OpenCall, world: World, record: Record) -> None:
    """Do a call that has been started, and record what it came to."""
    call = found.call
    whole, tool = record.unmasked(call), world.tool(call.name)
    if whole is None or tool is None:
        await record(Ended(call.id, "unknown", SECRET))
        return
    readied = _readied(found, whole, tool, world, record)
    if readied is None:
        await record(Ended(call.id, "failed", ELSEWHERE))
        return
    running = Running(call.id, record)
    end = Ended(call.id, "stopped", "")
    try:
        if readied.writes:
            await save(world, record, answer=found.called)
        end = await ended(whole, tool, world, running, readied.house)
    finally:
        if readied.writes and world.snapshots is not None:
            world.snapshots.dirty()
        if end.outcome == "stopped":
            end = running.stopped()
        await record(end)


def _readied(
    found: OpenCall, whole: ToolCall, tool: Tool, world: World, record: Record
) -> Readied | None:
    """None: the call is about other files by now than it was judged for."""
    try:
        now = touch(tool, tool.parse(whole.arguments), world.facts())
    except ToolFailed:
        return None
    if found.hash and fingerprint(whole, now) != found.hash:
        return None
    confines = judge(now, world, record.view).confines
    own: dict[str, object] = {
        "confines": confines,
        "answers": found.answers,
        "mode": mode_of(world, record.view),
    }
    files = world.house.get("files")
    if files is not None:
        only: Files = files  # pyright: ignore[reportAssignmentType] - a port, by its name
        own["files"] = only.only([target.real for target in now.files])
    writes = tool.effect is Effect.CHANGE or (tool.effect is Effect.RUN and confines.writes)
    return Readied(own, writes)
