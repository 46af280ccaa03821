"""A call is done: what was judged, by the rights of this moment, and nothing else.

Its files are saved before it may change any. What its tool says is made fit to be
recorded in `result`; whether it is to be done at all was decided before.
"""

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from refold.engine.judging import judge, mode_of
from refold.engine.result import Running, ended
from refold.engine.saving import changed, save
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events import Ended
from refold.journal.talk import OpenCall
from refold.permissions.facts import Decision, Touch
from refold.permissions.families import COMMANDS
from refold.place.port import Files
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.shown import Diff
from refold.values.tools import Effect

SECRET = (
    "Interrupted, and not repeated: its arguments held a secret that is not kept. "
    "It may or may not have happened: look first."
)
ELSEWHERE = (
    "Not done: what it names leads elsewhere by now than when it was allowed. A link or "
    "a folder has changed. Look, and call again."
)

MEANWHILE = "(The agent {who}, which works beside you, has changed {path} since.)"
FORBIDDEN = "Refused{why}. It was not done; do not try to get round this."


async def do(found: OpenCall, world: World, record: Record) -> None:
    """Do a call that has been started, and record what it came to."""
    call = found.call
    whole, tool = record.unmasked(call), world.tool(call.name)
    if whole is None or tool is None:
        await record(Ended(call.id, "unknown", SECRET))
        return
    running = Running(call.id, record)
    end = Ended(call.id, "stopped", "")
    try:
        end = await _done(found, whole, tool, world, running)
    finally:
        if end.outcome == "stopped":
            end = running.stopped()
        await record(end)


def refused(why: str) -> str:
    """What the model reads of a call that was not allowed."""
    return FORBIDDEN.format(why=f": {why}" if why else "")


async def _done(
    found: OpenCall, whole: ToolCall, tool: Tool, world: World, running: Running
) -> Ended:
    """The call is looked at again, as late as can be: a link or the mode may be another."""
    record = running.record
    now = as_judged(found, whole, tool, world)
    if now is None:
        return Ended(whole.id, "failed", ELSEWHERE)
    known = partial(world.prepared.decide, whole.id)
    above = world.lineage.above
    decision = judge(now, world, record.view, above=above, by=known)
    if writes := _may_write(tool, decision):
        await save(world, record, answer=found.called)
        # The mode may be another by now.
        decision = judge(now, world, record.view, above=above, by=known)
    if end := denied(whole.id, decision):
        return end
    own = _own(found, now, decision, running, world)
    try:
        end = await ended(whole, tool, world, running, own)
    finally:
        if writes:
            changed(world)
    return _beside_others(end, now, world, record)


def _beside_others(end: Ended, about: Touch, world: World, record: Record) -> Ended:
    """What it wrote is known to the whole tree; and whose change was in its way, to it."""
    shared, us = world.lineage.shared, world.lineage.address
    for diff in end.shown:
        if isinstance(diff, Diff):
            shared.wrote(diff.path, diff.after, us)
    if end.outcome != "failed" or about.effect is not Effect.CHANGE:
        return end
    known = record.view.known.files
    told = [
        MEANWHILE.format(who=who, path=path)
        for path in sorted({target.real for target in about.files})
        if (who := shared.other(path, known.get(path, ""), us))
    ]
    return replace(end, text=" ".join((end.text, *told))) if told else end


def denied(call_id: str, decision: Decision) -> Ended | None:
    """How a call ends that is forbidden by now, though it was begun."""
    if decision.verdict != "deny":
        return None
    return Ended(call_id, "refused", refused(decision.reason))


def as_judged(found: OpenCall, whole: ToolCall, tool: Tool, world: World) -> Touch | None:
    """None: the call is about other files by now than it was judged for."""
    try:
        look = world.prepared.look(whole, tool, world.facts())
    except ToolFailed:
        return None
    return look.touch if not found.hash or look.hash == found.hash else None


def _may_write(tool: Tool, decision: Decision) -> bool:
    """Of what runs, only commands are confined; another tool can do what it wants."""
    confined = tool.spec.name in COMMANDS
    runs = tool.effect is Effect.RUN and (decision.confines.writes or not confined)
    return tool.effect is Effect.CHANGE or runs


def _own(
    found: OpenCall, now: Touch, decision: Decision, running: Running, world: World
) -> Mapping[str, object]:
    """What the house has for this call alone."""
    own: dict[str, object] = {
        "call": found.call.id,
        "confines": decision.confines,
        "answers": found.answers,
        "mode": mode_of(world, running.record.view, world.lineage.above),
        "deferred": tuple(tool.spec for tool in world.deferred),
    }
    files = world.house.get("files")
    if files is not None:
        only: Files = files  # pyright: ignore[reportAssignmentType] - a port, by its name
        own["files"] = only.only([target.real for target in now.files])
    return own
