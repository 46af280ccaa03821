"""A whole tree of sessions exceeds the budget of its root by at most one call."""

import random
from collections.abc import AsyncGenerator

import anyio
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from refold.agents.budget_grant import ChildGrant, GrantQueue, may_come_back, new_grant
from refold.engine.budget import (
    Price,
    ask_outside_conversation,
    estimate_next_step,
    reserve,
)
from refold.engine.decide import decide
from refold.engine.loop import perform
from refold.engine.policies.budget import draw_on_grant, end_over_budget, warn_of_budget
from refold.engine.policies.conversation import converse
from refold.engine.policies.step_limit import going_on
from refold.engine.policies.turn_end import wait_for_children
from refold.engine.world import Lineage, Model, SystemPrompt, World
from refold.errors import ProviderError
from refold.journal.events.child_events import ChildBorn, ChildEnded, ChildGranted, Forked
from refold.journal.events.kinds import (
    Entry,
    ModelAnswered,
    ModelAsked,
    Reserved,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import BudgetSet
from refold.journal.state.fold import BudgetUsed, View, budget_of, budget_used, fold
from refold.journal.store.port import MemoryStore
from refold.permissions.rules import parse
from refold.provider.port import Delta, Request
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Reply as Answer
from refold.testing.providers import deltas
from refold.tools.contract import Reply, tool
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.tools import Effect
from refold.values.usage import NO_LIMIT, Budget, Estimate, Spent, Usage

MOST = 100  # tokens of one answer
CENT = 0.01
LEAF = Request(Log([StoredMessage(0, Message("user", (Text("Hm?"),)))]), max_output=MOST)


def a_cent_a_token(model: str, usage: Usage) -> float | None:
    return CENT * usage.output


def unknown_price(model: str, usage: Usage) -> float | None:
    return None


class Plan(Struct, frozen=True):
    """How a node of the tree spends: the number of calls in each turn."""

    children: int = 0
    leaves: int = 0
    steps: int = 4
    depth: int = 1


class CountingModel:
    """Answers every request, with a call as long as there are steps left."""

    def __init__(self, plan: Plan, depth: int, rest: "Tree") -> None:
        self._plan, self._depth, self._tree = plan, depth, rest
        self._step = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        usage = Usage(cached=1, output=self._tree.chance.randint(1, MOST))
        step = self._step
        if request.tools:
            self._step += 1
        await self._tree.spend(usage)
        reply = (
            Answer("So.", usage=usage)
            if not request.tools
            else self._answer_step(step, usage)
        )
        for delta in deltas(reply, step):
            yield delta

    def _answer_step(self, step: int, usage: Usage) -> Answer:
        plan, below = self._plan, self._depth < self._plan.depth
        if step >= plan.steps:
            return Answer("Done.", usage=usage)
        if plan.children and below and step % 2 == 0:
            calls = tuple(("hand_out", "{}") for _ in range(plan.children))
        else:
            calls = (("fan_out", "{}"),)
        return Answer(calls=calls, usage=usage)


class Tree:
    """A root session and its subagents, with all requests to the provider."""

    def __init__(self, plan: Plan, budget: Budget, price: Price, seed: int = 0) -> None:
        self.plan, self.budget, self.price = plan, budget, price
        self.chance = random.Random(seed)
        self.usage: list[Usage] = []
        self.ended: list[View] = []
        self.largest = 0  # tokens that were set aside for one call

    async def spend(self, usage: Usage) -> None:
        self.usage.append(usage)
        for _ in range(self.chance.randint(0, 3)):
            await anyio.lowlevel.checkpoint()

    @property
    def spent(self) -> float:
        return sum(self.price("", usage) or 0.0 for usage in self.usage)


class Node(Struct):
    """One session of the tree."""

    tree: Tree
    depth: int
    record: Recorder
    purse: ChildGrant | None = None
    queue: GrantQueue = field(default_factory=GrantQueue)
    world: World = field(
        default_factory=lambda: World(Model(CountingModel(Plan(), 0, None)))
    )  # type: ignore[arg-type]

    async def run(self) -> View:
        tree = self.tree
        settled = tree.budget if self.purse is None else NO_LIMIT
        lent = None if self.purse is None else tree.price
        drawn = (draw_on_grant(settled, tree.price),) if lent else ()
        self.world = World(
            Model(CountingModel(tree.plan, self.depth, tree), price=tree.price),
            (hand_out, fan_out),
            (wait_for_children, going_on, converse, end_over_budget(settled, lent), *drawn,
             *warn_of_budget(settled, has_grant=lent is not None)),
            (parse("*", "allow"),),
            tool_dependencies={"node": self},
            prompt=SystemPrompt(max_output=MOST),
            budget=settled,
            lineage=Lineage(grant=self.purse),
        )  # fmt: skip
        session = await Session.open(self.record, lambda _: self.world)
        await session.inbox.say("Go.")
        view = await session.run_turns()
        tree.ended.append(view)
        for entry in await self.record.entries():
            if isinstance(entry.event, ModelAsked | Reserved):
                tree.largest = max(tree.largest, entry.event.tokens)
        return view

    async def child(self, call_id: str) -> str:
        born: list[ChildBorn] = []

        def make_events(view: View) -> tuple[ChildBorn, ...]:
            born.clear()
            need = Estimate(self.tree.price("", Usage(output=MOST)), MOST)
            budget = budget_of(view, self.world.budget)
            grant = new_grant(view, budget, need, parent_has_grant=self.purse is not None)
            if grant is None:
                return ()
            name = view.children.next_name
            born.append(ChildBorn(name, call_id, "code", "Go.", grant=grant))
            return tuple(born)

        while not await self.record.append_if(make_events):
            view = self.record.view
            if not may_come_back(view, budget_of(view, self.world.budget)):
                return "nothing is left"
            await self.record.wait_for_event(after=view.seq)
        name, grant = born[0].child, born[0].grant
        below = Recorder(MemoryStore(), clock=lambda: 0.0)
        await below(BudgetSet(grant))
        purse = ChildGrant(self.record, lambda: self.world, name, self.queue)
        view = await Node(self.tree, self.depth + 1, below, purse).run()
        spent = view.account.spent + view.account.children_spent
        await self.record(ChildEnded(name, "answered", "done", spent=spent))
        return view.turn.outcome


@tool(Effect.SELF)
async def hand_out(*, node: Node, call: str) -> Reply:
    """Give work to a child."""
    return Reply(await node.child(call))


@tool(Effect.SELF)
async def fan_out(*, node: Node) -> Reply:
    """Ask small models."""
    tree, world = node.tree, node.world
    aide = Model(CountingModel(Plan(), 9, tree), "x/leaf", price=tree.price)
    failed = 0

    async def leaf() -> None:
        nonlocal failed
        try:
            await ask_outside_conversation(
                LEAF, "leaf", aide, world.budget, node.record, node.purse
            )
        except ProviderError:
            failed += 1

    async with anyio.create_task_group() as group:
        for _ in range(tree.plan.leaves):
            group.start_soon(leaf)
    return Reply(f"{failed} failed")


def grow_tree(tree: Tree) -> View:
    return anyio.run(Node(tree, 0, Recorder(MemoryStore(), clock=lambda: 0.0)).run)


SHAPES = [
    Plan(children=50, leaves=1, steps=1),
    Plan(children=3, leaves=50, steps=3, depth=1),
    Plan(children=3, leaves=2, steps=3, depth=3),
    Plan(leaves=50, steps=9),
]


@pytest.mark.parametrize("plan", SHAPES)
@pytest.mark.parametrize("dollars", [0.5, 17.3])
def test_a_tree_exceeds_its_budget_by_at_most_one_call(plan: Plan, dollars: float) -> None:
    tree = Tree(plan, Budget(dollars), a_cent_a_token, seed=int(dollars))

    view = grow_tree(tree)

    assert tree.spent <= dollars + MOST * CENT
    everything = view.account.spent + view.account.children_spent
    assert everything.dollars == pytest.approx(tree.spent)
    assert everything.answers == len(tree.usage)
    assert everything.usage == sum(tree.usage, Usage())
    of_nodes = sum((item.account.spent for item in tree.ended), Spent())
    assert of_nodes == replace(everything, dollars=of_nodes.dollars)
    assert view.turn.granted == view.turn.reserved == ()


@pytest.mark.parametrize("plan", SHAPES)
def test_at_an_unknown_price_a_tree_stays_within_its_token_budget(
    plan: Plan,
) -> None:
    tree = Tree(plan, Budget(9.0, tokens=2_000), unknown_price)

    grow_tree(tree)

    assert sum(usage.uncached for usage in tree.usage) <= 2_000 + tree.largest


@pytest.mark.parametrize("calls", [1, 7, 60])
def test_the_call_budget_applies_to_the_whole_tree(calls: int) -> None:
    tree = Tree(
        Plan(children=6, leaves=3, steps=5, depth=2), Budget(calls=calls), unknown_price
    )

    grow_tree(tree)

    assert len(tree.usage) == calls


def test_a_child_waits_while_the_whole_budget_is_granted_to_others() -> None:
    """Ten children give cheap answers, but the budget has room for the longest possible
    answer of only a few.
    """
    tree = Tree(Plan(children=10, steps=1), Budget(3.5), cheap_but_longest_answers, seed=1)

    view = grow_tree(tree)

    outcomes = [item.turn.outcome for item in tree.ended]
    assert (view.turn.outcome, len(outcomes)) == ("answered", 11)
    assert outcomes.count("budget") < 5  # the last that is at work does without


def cheap_but_longest_answers(model: str, usage: Usage) -> float:
    return CENT * usage.output if usage.output == MOST else CENT / 100


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_that_runs_out_of_budget_has_spent_most_of_it(
    seed: int,
) -> None:
    plan = Plan(children=3, leaves=4, steps=8, depth=2)
    tree = Tree(plan, Budget(30.0), a_cent_a_token, seed)

    view = grow_tree(tree)

    assert view.turn.outcome == "budget"
    assert tree.spent > 0.8 * 30.0
    assert {item.turn.outcome for item in tree.ended} <= {"budget", "answered"}


def test_a_child_that_runs_out_of_budget_returns_the_rest_to_its_parent() -> None:
    """The child may not use its last tokens, because a call must fit in as a whole."""
    record = Recorder(MemoryStore(), clock=lambda: 0.0)

    async def main() -> tuple[Budget | None, View]:
        await record(TurnStarted(0))
        await record(ChildBorn("child-1", "c1", "code", "", grant=Budget(1.0)))
        mine = World(Model(CountingModel(Plan(), 0, None)), budget=Budget(1.0))  # type: ignore[arg-type]
        purse = ChildGrant(record, lambda: mine, "child-1", GrantQueue())
        there = fold([Entry(1, TurnStarted(0)), Entry(2, ModelAsked(dollars=0.9))])
        result = await purse.request_more(Estimate(0.2, 10), budget_used(there))
        await record(
            ChildEnded("child-1", "budget", "partial", spent=Spent(Usage(), 0.4, 1))
        )
        return result, record.view

    budget, after = anyio.run(main)

    assert budget is None
    assert budget_used(after).dollars == pytest.approx(0.4)


def test_grant_of_a_child_counts_as_used_until_it_ends() -> None:
    began = [
        Entry(1, TurnStarted(0)),
        Entry(2, ChildBorn("child-1", "c1", "code", "", grant=Budget(1.0, 100, 3))),
        Entry(3, ChildBorn("child-2", "c2", "code", "", grant=Budget(0.5))),
    ]
    more = [Entry(4, ChildGranted("child-1", Budget(2.0, 200, 5)))]
    over = [Entry(5, ChildEnded("child-1", "answered", "done", spent=ten_cents()))]

    lent, grown_, ended = fold(began), fold([*began, *more]), fold([*began, *more, *over])

    assert (
        budget_used(lent).dollars,
        budget_used(lent).tokens,
        budget_used(lent).calls,
    ) == (1.5, 100, 3)
    assert (
        budget_used(grown_).dollars,
        budget_used(grown_).tokens,
        budget_used(grown_).calls,
    ) == (2.5, 200, 5)
    assert (
        budget_used(ended).dollars,
        budget_used(ended).tokens,
        budget_used(ended).calls,
    ) == (0.6, 7, 1)
    assert ended.account.children_spent == ten_cents()
    assert fold([*over], fold([*began, *more])).turn == ended.turn


def test_a_forked_session_counts_no_grants_of_the_original() -> None:
    born = ChildBorn("child-1", "c1", "code", "", grant=Budget(1.0))
    copied = fold([Entry(1, TurnStarted(0)), Entry(2, born), Entry(3, Forked("s", 2))])

    assert budget_used(copied).dollars == 0.0


def ten_cents() -> Spent:
    return Spent(Usage(output=7), 0.1, 1)


def test_a_child_gets_a_share_of_the_remaining_budget_or_the_minimum_it_needs() -> None:
    view = fold([Entry(1, TurnStarted(0))])
    budget = Budget(16.0, 1_600, 32, 60.0)

    first = new_grant(view, budget, Estimate(0.5, 50))
    costly = new_grant(view, budget, Estimate(3.0, 50))
    no_limits = new_grant(view, NO_LIMIT, Estimate(0.5, 50))

    assert first == Budget(1.0, 100, 2, 60.0)
    assert costly == Budget(3.0, 100, 2, 60.0)
    assert no_limits == NO_LIMIT


def test_no_child_starts_when_the_budget_is_used_up() -> None:
    view = fold([Entry(1, TurnStarted(0)), Entry(2, ModelAsked(dollars=1.0))])

    assert new_grant(view, Budget(1.0), Estimate(0.1, 1)) is None
    assert new_grant(view, Budget(1.05), Estimate(0.1, 1), parent_has_grant=True) is None


def test_after_a_crash_a_child_receives_the_grant_that_it_had_not_recorded() -> None:
    """The parent had recorded it; the child died before it could."""

    async def main() -> tuple[Budget | None, Budget | None, int]:
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        await record(TurnStarted(0))
        await record(ChildBorn("child-1", "c1", "code", "", grant=Budget(1.0)))
        mine = World(Model(CountingModel(Plan(), 0, None)), budget=Budget(64.0))  # type: ignore[arg-type]
        purse = ChildGrant(record, lambda: mine, "child-1", GrantQueue())
        there = budget_used(
            fold([Entry(1, TurnStarted(0)), Entry(2, ModelAsked(dollars=1.0))])
        )
        first = await purse.request_more(Estimate(0.5, 1), there)
        seq = record.view.seq
        again = await ChildGrant(
            record, lambda: mine, "child-1", GrantQueue()
        ).request_more(Estimate(0.5, 1), there)
        return first, again, record.view.seq - seq

    first, again, recorded = anyio.run(main)

    assert first == again
    assert first is not None
    assert recorded == 0


def test_grants_and_reservations_count_once_after_a_crash() -> None:
    store = MemoryStore()
    born = ChildBorn("child-1", "c1", "code", "", grant=Budget(2.0))
    events = [TurnStarted(0), born, ModelAsked(dollars=0.5), Reserved("leaf", "x", 0.25, 1)]

    async def write_events() -> View:
        record = Recorder(store, clock=lambda: 0.0)
        return await record(*events)

    async def read_again() -> View:
        return await Recorder(store, clock=lambda: 0.0).open()

    before, after = anyio.run(write_events), anyio.run(read_again)

    assert budget_used(after) == budget_used(before)
    assert budget_used(after).dollars == pytest.approx(2.75)


def test_a_child_is_warned_once_below_50_and_once_below_25_percent_of_its_share() -> None:
    policies = warn_of_budget(NO_LIMIT, has_grant=True)
    answer = ModelAnswered(Message("assistant", (Text("so"),)), Usage(), "calls")

    def list_warnings(left: float, *noted: str) -> list[str]:
        view = fold([
            Entry(1, TurnStarted(0)),
            Entry(2, ModelAsked(policies=noted)),
            Entry(3, answer),
            Entry(4, BudgetSet(Budget(0.1), share_left=left)),
        ])  # fmt: skip
        return [p.__name__ for p in policies if p(view) is not None]

    assert list_warnings(1.0) == list_warnings(0.7) == []
    assert list_warnings(0.4) == ["budget_50%"]
    assert list_warnings(0.4, "budget_50%") == []
    assert list_warnings(0.2, "budget_50%") == ["budget_25%"]


def test_a_model_call_beyond_the_grant_requests_more_budget_or_fails() -> None:
    estimates: list[Estimate] = []

    class Miser:
        share_left = 0.5

        async def request_more(self, need: Estimate, usage: object) -> Budget | None:
            estimates.append(need)
            return Budget(0.6) if len(estimates) == 1 else None

    async def main() -> View:
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        await record(TurnStarted(0), BudgetSet(Budget(0.1)))
        wanted = Reserved("leaf", "x", 0.4, 1)
        await reserve(lambda _: wanted, NO_LIMIT, record, Miser())
        with pytest.raises(ProviderError, match="the budget of this turn is used up"):
            await reserve(lambda _: wanted, NO_LIMIT, record, Miser())
        return record.view

    view = anyio.run(main)

    assert view.rights.budget == Budget(0.6)
    assert budget_used(view).dollars == pytest.approx(0.4)
    assert estimates == [Estimate(0.4, 1)] * 2


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ([], ["RequestBudget"]),
        ([BudgetSet(Budget(0.1), final=True)], ["EndTurn"]),
        ([BudgetSet(Budget(5.0))], []),
        ([TurnEnded("budget"), TurnStarted(0)], []),
    ],
)
def test_a_child_requests_more_budget_before_it_runs_out_and_ends_without_it(
    more: list[Entry], wanted: list[str]
) -> None:
    def price(model: str, usage: Usage) -> float | None:
        return 0.2

    answer = ModelAnswered(Message("assistant", (Text("so"),)), Usage(), "end", cost=0.05)
    news = [BudgetSet(Budget(0.1)), TurnStarted(0), ModelAsked(), answer, *more]
    view = fold([Entry(n, e) for n, e in enumerate(news, start=1)])  # type: ignore[arg-type]
    if not view.turn.steps and more:
        news.append(BudgetSet(Budget(1.0)))
        view = fold([Entry(n, e) for n, e in enumerate(news, start=1)])  # type: ignore[arg-type]

    choices = [
        p(view) for p in (end_over_budget(NO_LIMIT, price), draw_on_grant(NO_LIMIT, price))
    ]

    assert [type(item).__name__ for item in choices if item] == wanted
    assert estimate_next_step(view, price).dollars == 0.2


def test_a_child_grants_no_more_than_its_own_grant_unless_that_is_raised() -> None:
    class ParentGrant:
        share_left = 0.5

        def __init__(self, *budgets: Budget) -> None:
            self.more = list(budgets)

        async def request_more(self, need: Estimate, usage: object) -> Budget | None:
            return self.more.pop() if self.more else None

    async def request_dollars(parent_grant: ParentGrant) -> tuple[Budget | None, View]:
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        await record(TurnStarted(0), BudgetSet(Budget(1.0)), ModelAsked(dollars=0.5))
        await record(ChildBorn("child-1", "c1", "code", "", grant=Budget(0.4)))
        parent_world = World(
            Model(CountingModel(Plan(), 0, None)), lineage=Lineage(grant=parent_grant)
        )  # type: ignore[arg-type]
        child_used = budget_used(
            fold([Entry(1, TurnStarted(0)), Entry(2, ModelAsked(dollars=0.4))])
        )
        child_grant = ChildGrant(record, lambda: parent_world, "child-1", GrantQueue())
        assert child_grant.share_left == pytest.approx(0.1)
        return await child_grant.request_more(Estimate(0.3, 1), child_used), record.view

    refused, refused_view = anyio.run(request_dollars, ParentGrant())
    budget, granted_view = anyio.run(request_dollars, ParentGrant(Budget(1.3)))

    assert refused is None
    assert budget_used(refused_view).dollars == pytest.approx(0.9)
    assert budget is not None
    assert budget.dollars == pytest.approx(0.7)
    assert budget_used(granted_view).dollars == pytest.approx(1.2)
    assert granted_view.rights.budget == Budget(1.3)


def test_model_is_not_called_when_a_concurrent_reservation_used_the_budget() -> None:
    budget = Budget(1.0)
    policies = (going_on, converse, end_over_budget(budget))
    mine = World(Model(CountingModel(Plan(), 0, None)), policies=policies, budget=budget)  # type: ignore[arg-type]

    async def main() -> View:
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        view = await record(TurnStarted(0))
        choice = decide(view, policies)
        assert choice is not None
        async with anyio.create_task_group() as group:
            group.start_soon(record, Reserved("leaf", "x", 1.0, 1))
            group.start_soon(perform, choice, mine, record)
        return record.view

    assert anyio.run(main).turn.open_request is None


def test_a_child_that_is_out_of_time_is_refused_more_budget() -> None:
    class Plenty:
        share_left = 1.0

        async def request_more(self, need: Estimate, usage: object) -> Budget | None:
            return Budget(9.0, seconds=60.0)

    async def main() -> Budget | None:
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        await record(TurnStarted(0), BudgetSet(Budget(9.0, seconds=60.0)))
        grant = Budget(1.0, seconds=60.0)
        await record(ChildBorn("child-1", "c1", "code", "", grant=grant))
        mine = World(Model(CountingModel(Plan(), 0, None)), lineage=Lineage(grant=Plenty()))  # type: ignore[arg-type]
        with anyio.fail_after(60):
            there = BudgetUsed(seconds=61.0)
            return await ChildGrant(
                record, lambda: mine, "child-1", GrantQueue()
            ).request_more(Estimate(0.1), there)

    assert anyio.run(main) is None
