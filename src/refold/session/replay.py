"""Replays a session, event by event, with the current code, policies and rules.

Input from outside (model responses, results of tools, messages, the user's decisions) is
taken from the journal. Everything that the loop, its policies and the seam derived from the
input is computed again by the same functions, and compared: decisions, verdicts, ends of
calls, summaries, starts of turns. After each event the replay continues with the recorded
event, so that one difference does not cause a hundred others. Nothing is written, and no
model is called. `replay_difference` defines which events are equal.
"""

from collections.abc import Callable, Iterator, Sequence

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
from refold.engine.model_call import call_start
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
    FieldDifference,
    Replayed,
    difference,
    difference_or_none,
)
from refold.session.replay_trail import (
    Blobs,
    RecordedModel,
    ReplayRecord,
    ReplayTrail,
    choice_name,
    comparable_content,
    deltas_of,
    holds_mask,
)
from refold.session.session import turn_start
from refold.tools.contract import Tool
from refold.values.control import CompactionKind
from refold.values.tools import Effect

# One item for each event or field that was computed again; None if it is equal.
FieldDifferences = list[FieldDifference | None]

# The dependencies of tools that also exist in a replay.
_OWN_DEPENDENCIES = frozenset({"call", "known", "progress", "deferred"})

_REPL_NAME = "repl"  # its code calls models, and a replay must not


class Replay:
    """The replay of one session. `blobs` are the blobs of the session.

    `world_for` returns the world that a turn would have now. With `again`, read-only calls are
    run again, and their results are compared.
    """

    def __init__(
        self, world_for: Callable[[View], World], blobs: Blobs, *, again: bool = False
    ) -> None:
        self._trail = ReplayTrail(world_for, blobs)
        self._calls = _CallReplay(self._trail, again=again)

    async def run(
        self, entries: Sequence[Entry], tell: Callable[[int, int], None] | None = None
    ) -> Replayed:
        """Run the replay, and return its result.

        Before each event, `tell` is called with the number of events done and with their
        total.
        """
        steps = checked = 0
        divergences = list[Divergence]()
        for done, entry in enumerate(entries):
            if tell is not None:
                tell(done, len(entries))
            self._trail.move_to(entry)
            compared = await self._compare(entry)
            checked += len(compared)
            divergences += [
                self._to_divergence(entry, item) for item in compared if item is not None
            ]
            self._trail.apply(entry)
            if isinstance(entry.event, ModelAnswered) and not entry.event.partial:
                steps += 1
        return Replayed(steps, checked, tuple(divergences), tuple(self._trail.briefings))

    def _to_divergence(self, entry: Entry, finding: FieldDifference) -> Divergence:
        """Return the difference with its place: the event, the turn and the step."""
        turn = self._trail.view.turn
        # `turn.steps` counts the responses; a request that is open belongs to the next step.
        is_in_next_step = turn.open_request is not None or isinstance(
            entry.event, ModelAsked
        )
        step = turn.steps + 1 if is_in_next_step else turn.steps
        field, then, now = finding
        return Divergence(
            seq=entry.seq,
            turn=turn.seq,
            step=max(1, step),  # steps count from 1
            event=type(entry.event).__name__,
            field=field,
            then=then,
            now=now,
        )

    async def _compare(self, entry: Entry) -> FieldDifferences:
        """Return the differences in everything about this event that can be computed again.

        Events that record input from outside are skipped.
        """
        match entry.event:
            case TurnStarted(why="message") as event:
                now = turn_start(self._trail.view)
                return [difference_or_none(event, now, "nothing")]
            case ModelAsked() | Delivered() | AnswerRejected() | TurnEnded() as event:
                return [self._compare_decision(entry, event)]
            case ModelAnswered(partial=False) as event:
                return [self._compare_answer(event)]
            case Compacted() as event:
                return [await self._compare_compaction(entry, event)]
            case Judged() | Started() | Ended() as event:
                return await self._calls.compare(entry, event)
            case _:
                return []

    def _compare_decision(
        self, entry: Entry, recorded: ModelAsked | Delivered | AnswerRejected | TurnEnded
    ) -> FieldDifference | None:
        """Return how a recorded decision differs from the decision on the newest view.

        Return None if it equals the decision on any view that the loop may have seen.
        """
        first: FieldDifference | None = None
        for view, choice in self._trail.choices():
            replayed = _event_of_choice(choice, view, self._trail.world())
            deviation = difference_or_none(recorded, replayed, choice_name(choice))
            if deviation is None and choice is not None and entry.by != POLICY + choice.by:
                deviation = (BY, entry.by.removeprefix(POLICY), choice.by)
            if deviation is None:
                return None
            first = first or deviation
        return first

    def _compare_answer(self, recorded: ModelAnswered) -> FieldDifference | None:
        """Return how the response differs if it is assembled from its pieces again; None if it
        is equal.

        Ids, tools and all other content are compared.
        """
        view = self._trail.view
        asked = view.turn.open_request
        draft = model_call.new_draft(view, self._trail.world())
        for delta in deltas_of(recorded):
            draft.add(delta)
        may_call_tools = asked is None or asked.tools
        replayed = draft.to_answer(calls=may_call_tools)
        if replayed is None:
            return KIND, "ModelAnswered", "ModelFailed"
        was = comparable_content(recorded.message)
        would_be = comparable_content(replayed.message)
        if was != would_be:
            return "message", was, would_be
        if recorded.stop != replayed.stop:
            return "stop", recorded.stop, replayed.stop
        return None

    async def _compare_compaction(
        self, entry: Entry, recorded: Compacted
    ) -> FieldDifference | None:
        """Return how the compaction differs if it is made again with the recorded summary; None
        if it is equal.
        """
        first: FieldDifference | None = None
        author = entry.by if entry.person is None else PERSON
        for view, action, by in self._possible_compactions(entry, recorded):
            replayed = await self._compact_again(view, action, recorded)
            deviation = difference_or_none(recorded, replayed, "nothing")
            if deviation is None and author != by:
                deviation = (BY, author, by)
            if deviation is None:
                return None
            first = first or deviation
        return first or (KIND, "Compacted", self._trail.next_action_name())

    def _possible_compactions(
        self, entry: Entry, recorded: Compacted
    ) -> Iterator[tuple[View, CompactConversation, str]]:
        """Yield the compactions that may have been chosen, each with its view and
        author.
        """
        summary_request = self._trail.summary_request
        if entry.person is not None:
            start = summary_request.before if summary_request else self._trail.view
            kinds: tuple[CompactionKind, ...] = ("full",)
            if recorded.kind == "prune":
                # A full compaction is recorded as "prune" if there was nothing to summarize.
                kinds = ("prune", "full")
            for kind in kinds:
                action = CompactConversation(kind, ASKED_FOR, recorded.focus, wanted=True)
                yield start, action, PERSON
            return
        for view, choice in self._trail.choices():
            if summary_request is not None and view.seq > summary_request.before.seq:
                continue  # the loop had decided before this view
            if choice is not None and isinstance(choice.action, CompactConversation):
                yield view, choice.action, POLICY + choice.by

    async def _compact_again(
        self, view: View, action: CompactConversation, recorded: Compacted
    ) -> Event | None:
        """Return the event of a compaction with the recorded summary; None if it makes no
        event.
        """
        trail = self._trail
        world, record = trail.world(), trail.new_record(view)
        settled = trail.summary_request.settled if trail.summary_request else None
        # When the summary arrives, the view is that of the recorded compaction.
        provider = RecordedModel(
            _summary(recorded, settled), lambda: record.stay_at(trail.view)
        )
        helper = world.helper()
        replayed_helper = Model(provider, helper.name, helper.window, helper.price)
        replayed_world = replace(world, helper_model=lambda: replayed_helper)
        await compact_conversation(action, replayed_world, record, author="")
        return next((event for event in record.made if isinstance(event, Compacted)), None)


def _event_of_choice(choice: ChosenAction | None, view: View, world: World) -> Event | None:
    """Return the event that would record a choice; None if the choice alone does not determine
    the event.
    """
    if choice is None:
        return None
    match choice.action:
        case AskModel() as action:
            return call_start(action, view, world)
        case Deliver(words):
            return Delivered(words)
        case Reject(notes):
            return AnswerRejected(notes)
        case EndTurn(outcome, reason):
            return TurnEnded(outcome, reason)
        case _:
            return None


def _summary(recorded: Compacted, settled: Settled | None) -> str | ProviderError:
    """Return the summary that the model gives in the replay, or the recorded error.

    If the conversation was trimmed, the model's summary was rejected and is not in the
    journal. Then return a text that is rejected for the same reason: too long a text, or an
    empty text.
    """
    if settled is not None and settled.failed:
        return ProviderError(settled.failed)
    if recorded.kind != "trim":
        return without_tags(recorded.summary)
    if recorded.reason.endswith("longer than what it stands for"):
        # Longer than the conversation, and than any maximum length of a summary.
        chars = recorded.size_before + 8 * len(recorded.summary) + 1_000_000
        return "x" * chars
    return " "


class _CallReplay:
    """Compares the recorded events of calls with those that the seam would record now.

    With `again`, read-only calls are run again to compare their results.
    """

    def __init__(self, trail: ReplayTrail, *, again: bool) -> None:
        self._trail = trail
        self._again = again

    async def compare(
        self, entry: Entry, recorded: Judged | Started | Ended
    ) -> FieldDifferences:
        """Return the differences of an event of a call; [] if it cannot be computed again."""
        open_call = self._trail.view.conversation.call(recorded.call_id)
        if open_call is None or open_call.result is not None:
            return []
        if entry.person is not None:  # a person who forked the session ended its open calls
            return []
        if isinstance(recorded, Ended) and entry.by.startswith(POLICY):
            return [self._compare_settled(entry, open_call, recorded)]
        if isinstance(recorded, Ended) and open_call.stage != "called":
            # The call can have ended only if the loop decided to run calls.
            actions = [choice.action for _, choice in self._trail.choices() if choice]
            if not any(isinstance(action, RunCalls) for action in actions):
                return [(KIND, "RunCalls", self._trail.next_action_name())]
        if holds_mask(open_call.call) and open_call.stage != "denied":
            return []  # the arguments that were judged are not stored
        return await self._compare_step(open_call, recorded)

    def _compare_settled(
        self, entry: Entry, open_call: OpenCall, recorded: Ended
    ) -> FieldDifference | None:
        """Return the difference in the end of a call that a policy settled; None if it is
        equal.
        """
        first_choice: ChosenAction | None = None
        for view, choice in self._trail.choices():
            first_choice = first_choice or choice
            if choice is None or not isinstance(choice.action, SettleCalls):
                continue
            if recorded.call_id not in choice.action.ids:
                continue
            world, record = self._trail.world(), self._trail.new_record(view)
            replayed = calls.end_unexecuted(open_call, choice.action.reason, world, record)
            deviation = difference(recorded, replayed)
            if deviation is None and entry.by != POLICY + choice.by:
                deviation = (BY, entry.by.removeprefix(POLICY), choice.by)
            return deviation
        return KIND, "SettleCalls", choice_name(first_choice)

    async def _compare_step(
        self, open_call: OpenCall, recorded: Judged | Started | Ended
    ) -> FieldDifferences:
        """Return the differences of the recorded next stage of a call from what the seam does
        now.
        """
        world = self._world_at_verdict(recorded)
        views = self._trail.views_by_rights()
        # The events that would follow, for each view that the writer may have had.
        match open_call.stage:
            case "called":
                possible = [calls.begin(open_call.call, world, view) for view in views]
            case "allowed":
                possible = [
                    _judge_again(open_call, recorded, world, view) for view in views
                ]
            case "denied":
                record = self._trail.new_record()
                await calls.run(open_call.call.id, world, record)
                possible = [record.made]
            case "started":
                return await self._compare_result(open_call, recorded)
            case _:  # nothing would follow: the call waits for an answer
                possible = [list[Event]()]
        first_events = [events[0] if events else None for events in possible]
        return [_difference_from_all(recorded, first_events, "nothing")]

    async def _compare_result(
        self, open_call: OpenCall, recorded: Event
    ) -> FieldDifferences:
        """Return the differences in the end of a started call: whether it may run, and its
        result.
        """
        world, record = self._trail.world(), self._trail.new_record()
        id_ = open_call.call.id
        tool = world.tool(open_call.call.name)
        if calls.was_interrupted(open_call, world, record):
            return [difference(recorded, Ended(id_, "unknown", calls.UNKNOWN_OUTCOME))]
        if tool is None:
            return [difference(recorded, Ended(id_, "unknown", SECRET_NOT_KEPT))]
        if not isinstance(recorded, Ended):
            return [(KIND, type(recorded).__name__, "Ended")]
        if recorded.text == PATH_MOVED:
            return []  # it is unknown where links led then
        refusal = self._compare_refusal(open_call, tool, recorded)
        has_result = recorded.outcome in ("done", "failed")
        if self._again and has_result and self._is_repeatable(tool):
            return [refusal, await self._repeat_call(open_call, tool, recorded, record)]
        return [refusal]

    def _compare_refusal(
        self, open_call: OpenCall, tool: Tool, recorded: Ended
    ) -> FieldDifference | None:
        """Return the difference in the check of permissions right before a call is executed."""
        world = self._trail.world()
        # Without the hash, an access is returned even if links lead elsewhere now.
        call_without_hash = replace(open_call, hash="")
        access = access_as_judged(call_without_hash, open_call.call, tool, world)
        if access is None:
            return None
        # For each view that the writer may have had: the refusal, or None if the call may run.
        refusals = list[Ended | None]()
        for view in self._trail.views_by_rights():
            decision = judge(access, world, view, parent=world.lineage.parent)
            refusals.append(denial(open_call.call.id, decision))
        if recorded.outcome == "refused":
            return _difference_from_all(recorded, refusals, "the call is done")
        may_run = None in refusals
        if may_run or recorded.outcome == "stopped":
            return None
        return difference_or_none(recorded, refusals[0], "")

    def _is_repeatable(self, tool: Tool) -> bool:
        """Whether the tool is read-only, and can run in a replay, which lacks some
        dependencies.
        """
        world = self._trail.world()
        available = {*world.tool_dependencies, *_OWN_DEPENDENCIES} - {_REPL_NAME}
        if world.files is not None:
            available.add("files")
        if world.commands is not None:
            available.add("commands")
        has_dependencies = available.issuperset(tool.signature().needs)
        return tool.effect is Effect.LOOK and has_dependencies

    async def _repeat_call(
        self, open_call: OpenCall, tool: Tool, recorded: Ended, record: ReplayRecord
    ) -> FieldDifference | None:
        """Run a recorded call again; return the first difference to its recorded end,
        or None.
        """
        world = self._trail.world()
        own_dependencies: dict[str, object] = {
            "call": open_call.call.id,
            "deferred": world.deferred,
            "files": world.files,
            "commands": world.commands,
        }
        running = RunningCall(open_call.call.id, record)
        replayed = await run_tool(open_call.call, tool, world, running, own_dependencies)
        return difference(recorded, replayed)

    def _world_at_verdict(self, recorded: Event) -> World:
        """Return the world of this verdict: attended by a user if the recorded run was."""
        world = self._trail.world()
        match recorded:
            case Judged(verdict="ask"):
                return replace(world, attended=True)
            case Judged(verdict="deny", reason=reason) if reason.endswith(
                calls.NOBODY_TO_ASK
            ):
                return replace(world, attended=False)
            case _:
                return world


def _difference_from_all(
    recorded: Event, possible: Sequence[Event | None], instead: str
) -> FieldDifference | None:
    """Return the difference of `recorded` from the first of the `possible` events.

    Return None if it equals one of them. A possible event is None if something else would
    happen, which `instead` names.
    """
    differences = [difference_or_none(recorded, event, instead) for event in possible]
    return None if None in differences else differences[0]


def _judge_again(
    open_call: OpenCall, recorded: Event, world: World, view: View
) -> Sequence[Event]:
    """Judge an allowed call again, with the recorded targets of links, and return the
    events.
    """
    opening = calls.begin(open_call.call, world, view)
    if isinstance(recorded, Judged) and recorded.hash != open_call.hash:
        return opening  # a link had changed, so the call was judged as a new one
    # Links may have changed since then, so the hash of now stands for the approved one.
    hash_ = opening[0].hash if isinstance(opening[0], Judged) else ""
    return calls.judge_again(replace(open_call, hash=hash_), open_call.call, world, view)
