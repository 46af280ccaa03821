"""Replays a session, event by event, with the current code, policies and rules.

What came from outside (model responses, results of tools, messages, the user's decisions)
is taken from the journal. What the loop, its policies and the seam made of it is computed
again by the same functions, and compared: decisions, verdicts, ends of calls, summaries,
starts of turns. After each event the replay continues with the recorded one, so that one
difference does not cause a hundred others. Nothing is written, and no model is called.
`replay_difference` defines equality.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from refold.engine import calls, model_call
from refold.engine.authorize import judge
from refold.engine.decide import (
    ASKED_FOR,
    AskModel,
    ChosenAction,
    CompactConversation,
    Deliver,
    EndTurn,
    Reject,
    RunCalls,
    SettleCalls,
)
from refold.engine.execute import (
    PATH_MOVED,
    SECRET_NOT_KEPT,
    RunningCall,
    access_as_judged,
    denial,
    run_tool,
)
from refold.engine.model_call import model_asked
from refold.engine.summarize import compact_conversation, without_tags
from refold.engine.world import Model, World
from refold.errors import ProviderError
from refold.journal.events.kinds import (
    AnswerRejected,
    Compacted,
    Delivered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    Settled,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.session.recorder import PERSON
from refold.session.replay_difference import (
    BY,
    KIND,
    POLICY,
    Divergence,
    Found,
    Replayed,
    between,
    difference,
)
from refold.session.replay_trail import (
    Blobs,
    RecordedModel,
    ReplayRecord,
    ReplayTrail,
    choice_name,
    comparable_content,
    holds_mask,
    recorded_deltas,
)
from refold.session.session import beginning
from refold.tools.contract import Tool
from refold.values.tools import Effect

Compared = list[Found | None]  # one for each thing that was made again

# The dependencies of tools that exist in a replay, too.
_OWN = frozenset({"call", "known", "progress", "deferred"})

_MODELS = "repl"  # code asks models, and none is asked here


class Replay:
    """`world_for` gives the world of a turn as it would be now; `blobs` are the session's.

    With `again`, calls that only look are done again, and what they bring is compared.
    """

    def __init__(
        self, world_for: Callable[[View], World], blobs: Blobs, *, again: bool = False
    ) -> None:
        self._trail = ReplayTrail(world_for, blobs)
        self._calls = Calls(self._trail, again=again)

    async def run(self, entries: Iterable[Entry]) -> Replayed:
        steps = checked = 0
        found = list[Divergence]()
        for entry in entries:
            self._trail.reach(entry)
            compared = await self._compared(entry)
            checked += len(compared)
            found += [self._told(entry, each) for each in compared if each is not None]
            self._trail.pass_(entry)
            match entry.event:
                case ModelAnswered(partial=False):
                    steps += 1
                case _:
                    pass
        return Replayed(steps, checked, tuple(found), tuple(self._trail.briefings))

    def _told(self, entry: Entry, found: Found) -> Divergence:
        turn, kind = self._trail.view.turn, type(entry.event).__name__
        step = turn.steps + (turn.open_request is not None or kind == "ModelAsked")
        return Divergence(entry.seq, turn.seq, max(1, step), kind, *found)

    async def _compared(self, entry: Entry) -> Compared:
        """The fields of this event that were computed again, each compared; inputs are
        skipped.
        """
        match entry.event:
            case TurnStarted(why="message") as event:
                now = beginning(self._trail.view)
                return [between(event, now, "nothing")]
            case ModelAsked() | Delivered() | AnswerRejected() | TurnEnded() as event:
                return [self._decided(entry, event)]
            case ModelAnswered(partial=False) as event:
                return [self._answered(event)]
            case Compacted() as event:
                return [await self._shortened(entry, event)]
            case Judged() | Started() | Ended() as event:
                return await self._calls.compared(entry, event)
            case _:
                return []

    def _decided(
        self, entry: Entry, then: ModelAsked | Delivered | AnswerRejected | TurnEnded
    ) -> Found | None:
        first: Found | None = None
        for view, choice in self._trail.choices():
            now = _what_follows(choice, view, self._trail.world())
            other = between(then, now, choice_name(choice))
            if other is None and choice is not None and entry.by != POLICY + choice.by:
                other = (BY, entry.by.removeprefix(POLICY), choice.by)
            if other is None:
                return None
            first = first or other
        return first

    def _answered(self, then: ModelAnswered) -> Found | None:
        """The response, assembled from its pieces again: our ids, which tool is meant, what
        is not a call.
        """
        view = self._trail.view
        asked = view.turn.open_request
        draft = model_call.new_draft(view, self._trail.world())
        for delta in recorded_deltas(then):
            draft.add(delta)
        now = draft.to_answer(calls=asked is None or asked.tools)
        if now is None:
            return KIND, "ModelAnswered", "ModelFailed"
        if comparable_content(then.message) != comparable_content(now.message):
            return (
                "message",
                comparable_content(then.message),
                comparable_content(now.message),
            )
        return None if then.stop == now.stop else ("stop", then.stop, now.stop)

    async def _shortened(self, entry: Entry, then: Compacted) -> Found | None:
        """Compact again, with the summary of then."""
        first: Found | None = None
        author = entry.by if entry.person is None else PERSON
        for view, action, by in self._compacts(entry, then):
            other = between(then, await self._shrunk(view, action, then), "nothing")
            if other is None and author != by:
                other = (BY, author, by)
            if other is None:
                return None
            first = first or other
        return first or (KIND, "Compacted", self._trail.doing())

    def _compacts(
        self, entry: Entry, then: Compacted
    ) -> Iterator[tuple[View, CompactConversation, str]]:
        """What may have been wanted, and what was known then."""
        aside = self._trail.aside
        if entry.person is not None:
            start = aside[0] if aside else self._trail.view
            for kind in ("prune", "full") if then.kind == "prune" else ("full",):
                yield (
                    start,
                    CompactConversation(kind, ASKED_FOR, then.focus, wanted=True),
                    "person",
                )
            return
        for view, choice in self._trail.choices():
            late = aside is not None and view.seq > aside[0].seq
            if (
                choice is not None
                and isinstance(choice.action, CompactConversation)
                and not late
            ):
                yield view, choice.action, POLICY + choice.by

    async def _shrunk(
        self, view: View, action: CompactConversation, then: Compacted
    ) -> Event | None:
        trail = self._trail
        world, record = trail.world(), trail.rehearsal(view)
        words = _summary(then, trail.aside[1] if trail.aside else None)
        recalled = RecordedModel(words, lambda: record.go_on_at(trail.view))
        own = world.helper()
        aide = Model(recalled, own.name, own.window, own.price)
        await compact_conversation(
            action, replace(world, helper_model=lambda: aide), record, ""
        )
        return next((e for e in record.made if isinstance(e, Compacted)), None)


def _what_follows(choice: ChosenAction | None, view: View, world: World) -> Event | None:
    """The event that a choice is recorded as; None where it is not that simple."""
    match choice and choice.action:
        case AskModel() as action:
            return model_asked(action, view, world)
        case Deliver(words):
            return Delivered(words)
        case Reject(notes):
            return AnswerRejected(notes)
        case EndTurn(outcome, reason):
            return TurnEnded(outcome, reason)
        case _:
            return None


def _summary(then: Compacted, settled: Settled | None) -> str | ProviderError:
    """The recorded summary of the model, as far as the journal has it."""
    if settled is not None and settled.failed:
        return ProviderError(settled.failed)
    if then.kind != "trim":
        return without_tags(then.summary)
    too_long = then.reason.endswith("longer than what it stands for")
    return "x" * (then.size_before + 8 * len(then.summary) + 1_000_000) if too_long else " "


class Calls:
    """With `again`, calls that only look are done again, and what they bring is compared."""

    def __init__(self, trail: ReplayTrail, *, again: bool) -> None:
        self._trail, self._again = trail, again

    async def compared(self, entry: Entry, then: Judged | Started | Ended) -> Compared:
        found = self._trail.view.conversation.call(then.call_id)
        if found is None or found.result is not None or entry.person is not None:
            return []  # whoever made a fork settled what was under way
        if isinstance(then, Ended) and entry.by.startswith(POLICY):
            return [self._settled(entry, found, then)]
        if isinstance(then, Ended) and found.stage != "called":
            doing = [choice for _, choice in self._trail.choices()]
            if not any(c is not None and isinstance(c.action, RunCalls) for c in doing):
                return [(KIND, "RunCalls", choice_name(doing[0]))]
        if holds_mask(found.call) and found.stage != "denied":
            return []  # what it was judged for is not known any more
        return await self._stepped(found, then)

    def _settled(self, entry: Entry, found: OpenCall, then: Ended) -> Found | None:
        """A call that a policy ended."""
        first: ChosenAction | None = None
        for view, choice in self._trail.choices():
            first = first or choice
            if choice is None or not isinstance(choice.action, SettleCalls):
                continue
            if then.call_id in choice.action.ids:
                world, record = self._trail.world(), self._trail.rehearsal(view)
                now = calls.end_unexecuted(found, choice.action.reason, world, record)
                by = (BY, entry.by.removeprefix(POLICY), choice.by)
                other = None if entry.by == POLICY + choice.by else by
                return between(then, now, "") or other
        return KIND, "SettleCalls", choice_name(first)

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
        """A call that had been started: may it continue, and what was its result?"""
        world, record, id_ = self._trail.world(), self._trail.rehearsal(), found.call.id
        tool = world.tool(found.call.name)
        if calls.was_interrupted(found, world, record):
            return [between(then, Ended(id_, "unknown", calls.UNKNOWN_OUTCOME), "")]
        if tool is None:
            return [between(then, Ended(id_, "unknown", SECRET_NOT_KEPT), "")]
        if not isinstance(then, Ended):
            return [(KIND, type(then).__name__, "Ended")]
        if then.text == PATH_MOVED:
            return []  # where links led then, nobody knows
        allowed = self._forbidden(found, tool, then)
        if self._again and then.outcome in ("done", "failed") and self._can_look(tool):
            return [allowed, await self._looked(found, tool, then, record)]
        return [allowed]

    def _forbidden(self, found: OpenCall, tool: Tool, then: Ended) -> Found | None:
        """Permissions are checked once more before a call is executed."""
        world, bare = self._trail.world(), replace(found, hash="")
        about = access_as_judged(bare, found.call, tool, world)
        if about is None:
            return None
        ways = [
            denial(found.call.id, judge(about, world, view, above=world.lineage.parent))
            for view in self._trail.by_rights()
        ]
        if then.outcome == "refused":
            ends = [between(then, way, "the call is done") for way in ways]
            return None if None in ends else ends[0]
        if None in ways or then.outcome == "stopped":
            return None
        return difference(then, next(way for way in ways if way))

    def _can_look(self, tool: Tool) -> bool:
        world = self._trail.world()
        place = {"files": world.files, "commands": world.commands}
        there = {*world.tool_dependencies, *_OWN} - {_MODELS}
        there |= {name for name, port in place.items() if port is not None}
        return tool.effect is Effect.LOOK and {*tool.signature().needs} <= there

    async def _looked(
        self, found: OpenCall, tool: Tool, then: Ended, record: ReplayRecord
    ) -> Found | None:
        world = self._trail.world()
        own: dict[str, object] = {"call": found.call.id, "deferred": world.deferred}
        own |= {"files": world.files, "commands": world.commands}
        running = RunningCall(found.call.id, record)
        return difference(then, await run_tool(found.call, tool, world, running, own))

    def _as_attended(self, then: Event) -> World:
        """The world with or without a user to ask, as it was at this verdict."""
        world = self._trail.world()
        match then:
            case Judged(verdict="ask"):
                return replace(world, attended=True)
            case Judged(verdict="deny", reason=reason) if reason.endswith(
                calls.NOBODY_TO_ASK
            ):
                return replace(world, attended=False)
            case _:
                return world


def _anew(found: OpenCall, then: Event, world: World, view: View) -> Sequence[Event]:
    """What became of a call that was allowed. Where links led is taken as it was."""
    opening = calls.begin(found.call, world, view)
    if isinstance(then, Judged) and then.hash != found.hash:
        return opening
    hash_ = opening[0].hash if isinstance(opening[0], Judged) else ""
    return calls.judge_again(replace(found, hash=hash_), found.call, world, view)
