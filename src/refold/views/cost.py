"""The cost of a session, by turn, model and purpose, and its budget. Pure.

The cost is computed from all entries of the journal, because the session's view has only sums.
A price that is unknown is reported as unknown and not counted as zero. The cost of a session
does not include its subagents, so nothing is counted twice. The budget is read from the view.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildBorn,
    Entry,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Reserved,
    Said,
    Settled,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View, budget_of, budget_used
from refold.journal.state.session_tree import Node, spent_below, walk
from refold.values.usage import NO_LIMIT, Budget, Spent, Usage
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import dollars, duration, estimate_sign, spent_row, tokens
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

MAIN_PURPOSE = "main"  # the conversation; side calls have a purpose of their own
OTHER_PURPOSE = "other"  # the purpose is unknown


class Used(Struct, frozen=True, kw_only=True):
    """The usage and cost of `answers` model responses, as a part of a JSON document."""

    answers: int
    usage: Usage
    cost: float | None  # US dollars; None: a price is not known
    known_cost: float  # the cost of the responses whose price is known
    unpriced: int  # the number of responses whose price is not known


def usage_fields(spent: Spent) -> dict[str, Any]:
    """Return the values for the fields of `Used`, by name."""
    return {
        "answers": spent.answers, "usage": spent.usage, "cost": spent.cost,
        "known_cost": spent.dollars, "unpriced": spent.unpriced,
    }  # fmt: skip


class ModelUsed(Used, frozen=True, kw_only=True):
    model: str


class PurposeUsed(Used, frozen=True, kw_only=True):
    purpose: str


class NodeUsed(Used, frozen=True, kw_only=True):
    address: str
    agent: str


class TurnUsed(Used, frozen=True, kw_only=True):
    """The usage of a turn; `turn` 0 stands for the time between turns.

    `below` is the usage of the subagents that were started in the turn.
    """

    turn: int
    words: str
    outcome: str
    below: Used


class SpendingDocument(Used, frozen=True, kw_only=True, tag_field="type", tag="cost"):
    session_id: str | UnsetType = UNSET
    models: Sequence[ModelUsed]
    purposes: Sequence[PurposeUsed]
    nodes: Sequence[NodeUsed]
    turns: Sequence[TurnUsed] | UnsetType = UNSET


class TurnCost(Struct, frozen=True):
    """The cost of a turn. `seq` is 0 for the cost between turns."""

    seq: int
    words: str = ""  # the message that started the turn
    outcome: str = ""  # "" while it runs
    spent: Spent = Spent()
    below: Spent = Spent()  # by the subagents that it started, and those below them


class NodeCost(Struct, frozen=True):
    """The cost of one session of a tree, without that of its subagents."""

    address: str
    agent: str
    spent: Spent


class Spending(Struct, frozen=True):
    """The cost of a session, or of a whole tree of sessions.

    For a tree, `nodes` has the cost of each session, and `turns` are those of its root.
    """

    spent: Spent = Spent()
    by_model: Mapping[str, Spent] = {}
    by_purpose: Mapping[str, Spent] = {}
    turns: tuple[TurnCost, ...] = ()
    nodes: tuple[NodeCost, ...] = ()


class _Ledger:
    """Adds up the usage of entries. `child_spending` has the usage of each subagent, by name."""

    def __init__(self, child_spending: Mapping[str, Spent]) -> None:
        self._below = child_spending
        self.turns: list[TurnCost] = []
        self.models, self.purposes = dict[str, Spent](), dict[str, Spent]()
        self.spent = Spent()
        self._words: dict[int, str] = {}
        self._purpose_of: dict[int, str] = {}
        self._under_way = False

    def add(self, entry: Entry) -> None:
        """Add an event: it begins or ends a turn, or has the usage of a model response."""
        match entry.event:
            case Said(words, typed=typed):
                self._words[entry.seq] = typed or words
            case TurnStarted(cause, why):
                words = "(continued)" if why == "continue" else self._words.get(cause, "")
                self.turns.append(TurnCost(entry.seq, words))
                self._under_way = True
            case TurnEnded(outcome):
                self._change_last_turn(outcome=outcome)
                self._under_way = False
            case Reserved(purpose):
                self._purpose_of[entry.seq] = purpose
            case ModelAsked():
                self._purpose_of[entry.seq] = MAIN_PURPOSE
            case ChildBorn(name) if self.turns and name in self._below:
                self._change_last_turn(below=self.turns[-1].below + self._below[name])
            case _:
                self._add_response(entry.event)

    def _add_response(self, event: object) -> None:
        """Add the usage of a model response. Events without usage are ignored."""
        match event:
            case ModelAnswered(usage=usage, model=model, cost=cost):
                self._add_usage(MAIN_PURPOSE, model, usage, cost)
            case ModelFailed(usage=Usage() as usage, model=model, cost=cost):
                self._add_usage(MAIN_PURPOSE, model, usage, cost)
            case Settled(reserved, Usage() as usage, model, cost):
                self._add_usage(
                    self._purpose_of.get(reserved, OTHER_PURPOSE), model, usage, cost
                )
            case _:
                return

    def _add_usage(
        self, purpose: str, model: str, usage: Usage, cost: float | None
    ) -> None:
        """Add usage to the sums, and to the newest turn.

        Usage between turns is added to a separate item in the list of turns; its `seq` is 0.
        """
        self.spent = self.spent.plus(usage, cost)
        for sums, key in ((self.models, model), (self.purposes, purpose)):
            sums[key] = sums.get(key, Spent()).plus(usage, cost)
        needs_item = not self.turns or self.turns[-1].seq != 0
        if not self._under_way and needs_item:
            self.turns.append(TurnCost(0, "(between turns)"))
        self._change_last_turn(spent=self.turns[-1].spent.plus(usage, cost))

    def _change_last_turn(self, **changes: Any) -> None:
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], **changes)


def spending(
    entries: Iterable[Entry],
    child_spending: Mapping[str, Spent] = {},
) -> Spending:
    """Return the cost of one session from its entries, without its subagents.

    `child_spending` has the cost of each subagent by name. This cost is returned only with
    the turns that started the subagents.
    """
    ledger = _Ledger(child_spending)
    for entry in entries:
        ledger.add(entry)
    return Spending(ledger.spent, ledger.models, ledger.purposes, tuple(ledger.turns))


def tree_spending(root: Node, agent: Callable[[Node], str]) -> Spending:
    """Return the cost of a session with all its subagents, at any depth.

    `agent` returns the name of a node's agent.
    """
    child_costs = {child.name: spent_below(child) for child in root.children}
    own = spending(root.entries, child_costs)
    by_model, by_purpose = dict(own.by_model), dict(own.by_purpose)
    nodes = [NodeCost(root.address, agent(root), own.spent)]
    _, *descendants = walk(root)
    for node in descendants:
        node_spending = spending(node.entries)
        if not node.entries and node.spent.answers:
            # The node has no journal: only its parent recorded its cost.
            node_spending = Spending(
                node.spent, {"": node.spent}, {OTHER_PURPOSE: node.spent}
            )
        nodes.append(NodeCost(node.address, agent(node), node_spending.spent))
        _add_costs(by_model, node_spending.by_model)
        _add_costs(by_purpose, node_spending.by_purpose)
    total = sum((node_cost.spent for node_cost in nodes), Spent())
    return Spending(total, by_model, by_purpose, own.turns, tuple(nodes))


def _add_costs(sums: dict[str, Spent], costs: Mapping[str, Spent]) -> None:
    """Add each of `costs` to the sum under the same key, in place."""
    for key, spent in costs.items():
        sums[key] = sums.get(key, Spent()) + spent


def spending_lines(
    costs: Spending, full: str = "", width: int = 80, *, turns: bool = False
) -> list[Line]:
    """Return the cost by model and by purpose as lines; with `turns`, also by turn.

    `full` is a text about the context window, which is added as the last line.
    """
    if not costs.spent.answers:
        return [line("Nothing has been used yet.")]
    rows = list(_turn_lines(costs, width)) if turns else []
    tables = [costs.by_model]
    if len(costs.by_purpose) > 1:
        tables.append(costs.by_purpose)
    if len(costs.nodes) > 1:
        tables.append({
            f"{node.address} {node.agent}".rstrip(): node.spent for node in costs.nodes
        })  # fmt: skip
    for table in tables:
        if rows:
            rows.append(line(""))
        rows += _sum_lines(table)
    if len(tables) > 1 or len(costs.by_model) > 1:  # otherwise the only sum is the total
        rows.append(line(f"in all  {spent_row(costs.spent)}"))
    if full:
        rows.append(line(full, "dim"))
    return rows


def spending_document(
    costs: Spending, *, turns: bool = True, session_id: str | UnsetType = UNSET
) -> SpendingDocument:
    """Return the cost as a JSON document, without its turns if `turns` is false."""
    by_turn = [
        TurnUsed(
            turn=turn.seq, words=turn.words, outcome=turn.outcome,
            below=Used(**usage_fields(turn.below)), **usage_fields(turn.spent),
        )
        for turn in costs.turns
    ]  # fmt: skip
    return SpendingDocument(
        **usage_fields(costs.spent),
        session_id=session_id,
        models=[
            ModelUsed(model=model, **usage_fields(spent))
            for model, spent in costs.by_model.items()
        ],
        purposes=[
            PurposeUsed(purpose=purpose, **usage_fields(spent))
            for purpose, spent in costs.by_purpose.items()
        ],
        nodes=[
            NodeUsed(address=node.address, agent=node.agent, **usage_fields(node.spent))
            for node in costs.nodes
        ],
        turns=by_turn if turns else UNSET,
    )


def _sum_lines(sums: Mapping[str, Spent]) -> Iterator[Line]:
    """Yield a line with the usage and cost for each name."""
    width = max(cells(escape_to_one_line(name) or "?") for name in sums)
    for name, spent in sums.items():
        shown = escape_to_one_line(name) or "?"
        yield line(f"{shown}{' ' * (width - cells(shown))}  {spent_row(spent)}")


def _turn_lines(costs: Spending, width: int) -> Iterator[Line]:
    """Yield lines about each turn: its message, its usage and cost, and that of its subagents."""
    number = 0
    for turn in costs.turns:
        head = "     "
        if turn.seq:
            number += 1
            head = f"{number:>3}  "
        words = " ".join(visible(turn.words).split())
        yield (("dim", head), ("person", cut(words, width - len(head))))
        yield line(f"     {spent_row(turn.spent)}{_outcome_note(turn)}")
        if turn.below.answers:
            yield line(f"     {spent_row(turn.below)} by its subagents")


def _outcome_note(turn: TurnCost) -> str:
    """Return a note about the outcome of a turn; "" if the turn was answered."""
    if not turn.seq or turn.outcome in ("answered", "final"):
        return ""
    return f" · {turn.outcome.replace('_', ' ') or 'running'}"


def budget_lines(view: View, limits: Budget) -> list[Line]:
    """Return a line for each limit of the budget, with what is used of it.

    `limits` is the budget in the settings, which applies if the session has none of its own.
    """
    budget = budget_of(view, limits)
    if budget == NO_LIMIT:
        return [
            line("No budget: a turn may use up whatever it needs. /budget USD sets one.")
        ]
    origin = "as it is set" if view.rights.budget is None else "chosen for this session"
    head = line(f"One turn may use up, {origin}:")
    turn = ""  # no turn has begun
    if view.turn.seq:
        turn = "this turn"
    elif view.turn.outcome:
        turn = "the last turn"
    return [head, *_budget_rows(view, budget, turn)]


def budget_text(budget: Budget) -> str:
    """Return the limits of a budget in a few words."""
    limits = (
        "" if budget.dollars is None else dollars(budget.dollars),
        "" if budget.tokens is None else f"{tokens(budget.tokens)} tokens",
        "" if budget.calls is None else f"{budget.calls} model calls",
        "" if budget.seconds is None else duration(budget.seconds),
    )
    return ", ".join(limit for limit in limits if limit) or "whatever it needs"


def _budget_rows(view: View, budget: Budget, turn: str) -> Iterator[Line]:
    """Yield a line for each limit of the budget, with what was used of it.

    `turn` says which turn used it: "this turn" or "the last turn", or "" if none has begun.
    """
    spent, usage = view.turn.spent, budget_used(view)
    if budget.dollars is not None:
        left = max(0.0, budget.dollars - usage.dollars)
        reservation = _reservation_note(
            dollars(usage.reserved_dollars), usage.reserved_dollars
        )
        unpriced_note = ", and more whose price is not known" if spent.unpriced else ""
        used = f"{estimate_sign(spent.usage)}{dollars(spent.dollars)} used"
        text = f"{used}{reservation}{unpriced_note}, {dollars(left)} left"
        yield _budget_row(dollars(budget.dollars), text, turn)
    if budget.tokens is not None:
        left = max(0, budget.tokens - usage.tokens)
        reservation = _reservation_note(
            tokens(usage.reserved_tokens), usage.reserved_tokens
        )
        used = f"{estimate_sign(spent.usage)}{tokens(spent.usage.uncached)} used"
        text = f"{used}{reservation}, {tokens(left)} left"
        unit = "uncached tokens, while the price is not known"
        yield _budget_row(f"{tokens(budget.tokens)} {unit}", text, turn)
    if budget.calls is not None:
        left = max(0, budget.calls - usage.calls)
        text = f"{spent.answers} made, {left} left"
        yield _budget_row(f"{budget.calls} model calls", text, turn)
    if budget.seconds is not None:
        text = f"{duration(usage.seconds)} so far"
        # The time of a turn that has ended is not named.
        named_turn = turn if view.turn.seq else ""
        yield _budget_row(duration(budget.seconds), text, named_turn)


def _reservation_note(amount_text: str, amount: float) -> str:
    return f", {amount_text} reserved" if amount else ""


def _budget_row(limit: str, used: str, turn: str) -> Line:
    about = f"  ({turn}: {used})" if turn else ""
    return (("strong", f"  {limit}"), ("dim", about))
