"""The calls of a session that is run again: judged, begun and ended by the seam of now.

What a tool brought stands in the journal and is taken from there. That it was judged, by
which rule, whether it could begin, and how a call ends that is not done, is made again.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.engine import calls
from refold.engine.decide import Choice, RunCalls, SettleCalls
from refold.engine.doing import ELSEWHERE, SECRET, as_judged, denied
from refold.engine.judging import judge
from refold.engine.result import Running, ended
from refold.engine.world import World
from refold.journal.events import Ended, Entry, Event, Judged, Started
from refold.journal.fold import View
from refold.journal.talk import OpenCall
from refold.session.divergence import BY, KIND, POLICY, Found, between, difference
from refold.session.rehearsal import Rehearsal, holds_mask
from refold.session.trail import Trail, named
from refold.tools.contract import Tool
from refold.values.tools import Effect

Compared = list[Found | None]  # one for each thing that was made again
# What a call may ask the house for that is there in a replay, too.
_OWN = frozenset({"call", "known", "progress", "deferred"})
_MODELS = "repl"  # code asks models, and none is asked here


class Calls:
    """With `again`, calls that only look are done again, and what they bring is compared."""

    def __init__(self, trail: Trail, *, again: bool) -> None:
        self._trail, self._again = trail, again

    async def compared(self, entry: Entry, then: Judged | Started | Ended) -> Compared:
        found = self._trail.view.talk.call(then.call_id)
        if found is None or found.result is not None or entry.by == "person":
            return []  # whoever made a fork settled what was under way
        if isinstance(then, Ended) and entry.by.startswith(POLICY):
            return [self._settled(entry, found, then)]
        if isinstance(then, Ended) and found.stage != "called":
            doing = [choice for _, choice in self._trail.choices()]
            if not any(c is not None and isinstance(c.action, RunCalls) for c in doing):
                return [(KIND, "RunCalls", named(doing[0]))]
        if holds_mask(found.call) and found.stage != "denied":
            return []  # what it was judged for is not known any more
        return await self._stepped(found, then)

    def _settled(self, entry: Entry, found: OpenCall, then: Ended) -> Found | None:
        """A call that a policy ended."""
        first: Choice | None = None
        for view, choice in self._trail.choices():
            first = first or choice
            if choice is None or not isinstance(choice.action, SettleCalls):
                continue
            if then.call_id in choice.action.ids:
                world, record = self._trail.world(), self._trail.rehearsal(view)
                now = calls.settled(found, choice.action.reason, world, record)
                by = (BY, entry.by.removeprefix(POLICY), choice.by)
                other = None if entry.by == POLICY + choice.by else by
                return between(then, now, "") or other
        return KIND, "SettleCalls", named(first)

    async def _stepped(self, found: OpenCall, then: Judged | Started | Ended) -> Compared:
        """The next stage of a call, by the seam of now."""
        world, views = self._as_attended(then), self._trail.by_rights()
        match found.stage:
            case "called":
                ways = [calls.begin(found.call, world, view) for view in views]
            case "allowed":
                ways = [_anew(found, then, world, view) for view in views]
            case "denied":
                record = self._trail.rehearsal()
                await calls.run(found.call.id, world, record)
                ways = [record.made]
            case "started":
                return await self._went(found, then)
            case _:
                ways = [list[Event]()]
        ends = [between(then, way[0] if way else None, "nothing") for way in ways]
        return [None if None in ends else ends[0]]

    async def _went(self, found: OpenCall, then: Event) -> Compared:
        """A call that was begun: may it go on, and what did it come to?"""
        world, record, id_ = self._trail.world(), self._trail.rehearsal(), found.call.id
        tool = world.tool(found.call.name)
        if calls.in_doubt(found, world, record):
            return [between(then, Ended(id_, "unknown", calls.UNKNOWN), "")]
        if tool is None:
            return [between(then, Ended(id_, "unknown", SECRET), "")]
        if not isinstance(then, Ended):
            return [(KIND, type(then).__name__, "Ended")]
        if then.text == ELSEWHERE:
            return []  # where links led then, nobody knows
        allowed = self._forbidden(found, tool, then)
        if self._again and then.outcome in ("done", "failed") and self._can_look(tool):
            return [allowed, await self._looked(found, tool, then, record)]
        return [allowed]

    def _forbidden(self, found: OpenCall, tool: Tool, then: Ended) -> Found | None:
        """Rights are looked at once more before a call is done."""
        world, bare = self._trail.world(), replace(found, hash="")
        about = as_judged(bare, found.call, tool, world)
        if about is None:
            return None
        ways = [
            denied(found.call.id, judge(about, world, view, above=world.lineage.above))
            for view in self._trail.by_rights()
        ]
        if then.outcome == "refused":
            ends = [between(then, way, "the call is done") for way in ways]
            return None if None in ends else ends[0]
        if None in ways or then.outcome == "stopped":
            return None
        return difference(then, next(way for way in ways if way))

    def _can_look(self, tool: Tool) -> bool:
        there = {*self._trail.world().house, *_OWN} - {_MODELS}
        return tool.effect is Effect.LOOK and {*tool.needs} <= there

    async def _looked(
        self, found: OpenCall, tool: Tool, then: Ended, record: Rehearsal
    ) -> Found | None:
        world = self._trail.world()
        specs = tuple(each.spec for each in world.deferred)
        own = {"call": found.call.id, "deferred": specs}
        running = Running(found.call.id, record)
        return difference(then, await ended(found.call, tool, world, running, own))

    def _as_attended(self, then: Event) -> World:
        """The world with or without somebody to ask, as it was at this verdict."""
        world = self._trail.world()
        match then:
            case Judged(verdict="ask"):
                return replace(world, attended=True)
            case Judged(verdict="deny", reason=reason) if reason.endswith(calls.NOBODY):
                return replace(world, attended=False)
            case _:
                return world


def _anew(found: OpenCall, then: Event, world: World, view: View) -> Sequence[Event]:
    """What became of a call that was allowed. Where links led is taken as it was."""
    opening = calls.begin(found.call, world, view)
    if isinstance(then, Judged) and then.hash != found.hash:
        return opening
    hash_ = opening[0].hash if isinstance(opening[0], Judged) else ""
    return calls.anew(replace(found, hash=hash_), found.call, world, view)
