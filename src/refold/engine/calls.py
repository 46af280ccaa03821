"""The seam: every tool call goes through here, whatever is behind it.

A call is a small state machine in the fold (called, judged, perhaps asked,
started, ended), and `run` takes it on from wherever it stands. So going on
after a crash, or after a person has slept on a question, is the same code as
the first time. Permission, failures, live output and the size of results are
looked after here once. Whether a call should run at all now is `decide`'s
business.
"""

from collections.abc import Sequence
from os.path import normpath

import anyio

from refold.engine.judging import judge, touch
from refold.engine.result import Running, ended
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events import Ended, Event, Judged, Started
from refold.journal.fold import View
from refold.journal.talk import OpenCall
from refold.values.messages import ToolCall
from refold.values.tools import Effect

UNKNOWN = "Interrupted. It may or may not have happened: look first."
SECRET = (
    "Interrupted, and not repeated: its arguments held a secret that is not kept. "
    "It may or may not have happened: look first."
)


async def run_ready(world: World, record: Record) -> None:
    """Run every open call that need not wait for a person, all at once.

    One that a person allows meanwhile joins in. Changes to one file go one after
    the other, in the order of the calls.
    """
    files: dict[str, anyio.Lock] = {}
    taken: set[str] = set()
    running = 0

    async def take(found: OpenCall) -> None:
        nonlocal running
        async with files.setdefault(_file(found.call, world), anyio.Lock()):
            await run(found.call.id, world, record)
        running -= 1
        taken.discard(found.call.id)  # if a person has to be asked it comes again
        if not running:
            group.cancel_scope.cancel()  # nobody is left to be joined

    async with anyio.create_task_group() as group:
        while True:
            seen = record.view.seq
            for found in record.view.talk.calls:
                waits = found.result is not None or found.stage == "asked"
                if not waits and found.call.id not in taken:
                    taken.add(found.call.id)
                    running += 1
                    group.start_soon(take, found)
            await record.news(after=seen)


async def run(call_id: str, world: World, record: Record) -> None:
    """Take a call to its end, or to where only a person can take it on."""
    while (found := record.view.talk.call(call_id)) and found.result is None:
        match found.stage:
            case "called":
                opening = begin(found.call, world, record.view)
                kept = must_keep(opening, (found.call,), world)
                await record(*opening, kept=kept, by="rules")
            case "allowed" if _elsewhere(found, world):
                # What its path means has changed since it was judged: judge it anew.
                opening = begin(found.call, world, record.view)
                await record(*opening, kept=must_keep(opening, (found.call,), world))
            case "allowed":
                started = Started(call_id)
                await record(started, kept=must_keep([started], (found.call,), world))
            case "denied":
                await record(Ended(call_id, "refused", _refusal(found)))
            case "started" if in_doubt(found, world, record):
                await record(Ended(call_id, "unknown", UNKNOWN))
            case "started":
                await _do(found.call, world, record)
            case _:
                return


def begin(call: ToolCall, world: World, view: View) -> list[Event]:
    """How a call begins: judged, and started if nobody need be asked."""
    tool = world.tool(call.name)
    if tool is None:
        names = ", ".join(t.spec.name for t in world.tools) or "none"
        text = f"There is no tool {call.name!r}. The tools are: {names}."
        return [Ended(call.id, "failed", text)]
    try:
        about = touch(tool, tool.parse(call.arguments), world)
        found = judge(about, world, view)
    except ToolFailed as error:  # the arguments fit not, or name what cannot be a path
        return [Ended(call.id, "failed", str(error))]
    verdict, reason = found.verdict, found.reason
    if verdict == "ask" and not world.attended:
        verdict, reason = "deny", f"{reason}, and nobody is there to ask"
    judged = Judged(call.id, verdict, found.rule, reason, about.file)
    return [judged, Started(call.id)] if verdict == "allow" else [judged]


def must_keep(events: Sequence[Event], calls: Sequence[ToolCall], world: World) -> bool:
    """A start that may change something is on the disk before anything is done.

    So is a question, before a person is shown it.
    """
    safe = {c.id for c in calls if (e := _effect(c, world)) and e.repeatable}
    return any(
        (isinstance(e, Started) and e.call_id not in safe)
        or (isinstance(e, Judged) and e.verdict == "ask")
        for e in events
    )


def in_doubt(found: OpenCall, world: World, record: Record) -> bool:
    """Was it started by a writer that died? Then only a look may be repeated."""
    ours = found.started > record.since
    effect = _effect(found.call, world)
    return not ours and not (effect and effect.repeatable)


def settled(found: OpenCall, reason: str, world: World, record: Record) -> Ended:
    """How a call ends that will not be done, or not again."""
    if found.stage == "started" and in_doubt(found, world, record):
        return Ended(found.call.id, "unknown", UNKNOWN)
    return Ended(found.call.id, "stopped", f"Not done: {reason}.")


async def _do(call: ToolCall, world: World, record: Record) -> None:
    whole, tool = record.unmasked(call), world.tool(call.name)
    if whole is None or tool is None:
        await record(Ended(call.id, "unknown", SECRET))
        return
    running = Running(call.id, record)
    end = Ended(call.id, "stopped", "")
    try:
        end = await ended(whole, tool, world, running)
    finally:
        if end.outcome == "stopped":
            end = running.stopped()
        await record(end)


def _elsewhere(found: OpenCall, world: World) -> bool:
    """Does the path of a call that was judged lead to another file by now?"""
    tool = world.tool(found.call.name)
    if tool is None:
        return False
    try:
        now = touch(tool, tool.parse(found.call.arguments), world).file
    except ToolFailed:
        return True
    return now != found.real


def _effect(call: ToolCall, world: World) -> Effect | None:
    tool = world.tool(call.name)
    return tool.effect if tool else None


def _file(call: ToolCall, world: World) -> str:
    """What no two calls may work on at once: a changed file; else the call itself."""
    tool = world.tool(call.name)
    if tool is None or tool.effect is not Effect.CHANGE or not tool.path:
        return call.id
    try:
        path = str(tool.parse(call.arguments).get(tool.path, call.id))
        return (normpath(path), *world.names(path))[-1]  # the real one, if it is known
    except ToolFailed:
        return call.id


def _refusal(found: OpenCall) -> str:
    why = f": {found.reason}" if found.reason else ""
    return f"Refused{why}. It was not done; do not try to get round this."
