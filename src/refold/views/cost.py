"""The cost of a session, by turn, model and purpose, and its budget. Pure.

Costs are read from all entries, because the view has sums only. An unknown price is reported as
unknown and never counted as zero. Each node of a tree counts its own journal, so nothing is
counted twice. The budget is read from the view.
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
    """What model responses used, in a document. `answers` counts them."""

    answers: int
    usage: Usage
    cost: float | None  # US dollars; null: a price is not known
    known_cost: float  # without the responses whose price is not known
    unpriced: int


def usage_fields(spent: Spent) -> dict[str, Any]:
    """The fields of `Used`."""
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
    """`turn` 0: between turns. `below` is by the subagents that it started."""

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
    """The cost of a turn. With `seq` 0 it is what was spent between turns."""

    seq: int
    words: str = ""  # the message that started it
    outcome: str = ""  # "" while it runs
    spent: Spent = Spent()
    below: Spent = Spent()  # by the children that it started, with all below them


class NodeCost(Struct, frozen=True):
    """What one session of a tree used itself."""

    address: str
    agent: str
    spent: Spent


class Spending(Struct, frozen=True):
    """`nodes` are set if a whole tree was counted; `turns` are those of its root."""

    spent: Spent = Spent()
    by_model: Mapping[str, Spent] = {}
    by_purpose: Mapping[str, Spent] = {}
    turns: tuple[TurnCost, ...] = ()
    nodes: tuple[NodeCost, ...] = ()


class _Ledger:
    """Adds up the usage of entries."""

    def __init__(self, child_spending: Mapping[str, Spent]) -> None:
        self._below = child_spending
        self.turns: list[TurnCost] = []
        self.models, self.purposes = dict[str, Spent](), dict[str, Spent]()
        self.spent = Spent()
        self._words: dict[int, str] = {}
        self._reserved: dict[int, str] = {}
        self._under_way = False

    def add(self, entry: Entry) -> None:
        match entry.event:
            case Said(words, typed=typed):
                self._words[entry.seq] = typed or words
            case TurnStarted(cause, why):
                words = "(continued)" if why == "continue" else self._words.get(cause, "")
                self.turns.append(TurnCost(entry.seq, words))
                self._under_way = True
            case TurnEnded(outcome):
                self._change(outcome=outcome)
                self._under_way = False
            case Reserved(purpose):
                self._reserved[entry.seq] = purpose
            case ModelAsked():
                self._reserved[entry.seq] = MAIN_PURPOSE
            case ChildBorn(name) if self.turns and name in self._below:
                self._change(below=self.turns[-1].below + self._below[name])
            case _:
                self._add_response(entry.event)

    def _add_response(self, event: object) -> None:
        match event:
            case ModelAnswered(usage=usage, model=model, cost=cost):
                self._add_usage(MAIN_PURPOSE, model, usage, cost)
            case ModelFailed(usage=Usage() as usage, model=model, cost=cost):
                self._add_usage(MAIN_PURPOSE, model, usage, cost)
            case Settled(reserved, Usage() as usage, model, cost):
                self._add_usage(
                    self._reserved.get(reserved, OTHER_PURPOSE), model, usage, cost
                )
            case _:
                return

    def _add_usage(
        self, purpose: str, model: str, usage: Usage, cost: float | None
    ) -> None:
        self.spent = self.spent.plus(usage, cost)
        for sums, key in ((self.models, model), (self.purposes, purpose)):
            sums[key] = sums.get(key, Spent()).plus(usage, cost)
        if not self._under_way and (not self.turns or self.turns[-1].seq):
            self.turns.append(TurnCost(0, "(between turns)"))
        self._change(spent=self.turns[-1].spent.plus(usage, cost))

    def _change(self, **changes: Any) -> None:
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], **changes)


def spending(
    entries: Iterable[Entry],
    child_spending: Mapping[str, Spent] = {},
) -> Spending:
    """The cost of one session. `child_spending` has the cost of its subagents, for its turns."""
    ledger = _Ledger(child_spending)
    for entry in entries:
        ledger.add(entry)
    return Spending(ledger.spent, ledger.models, ledger.purposes, tuple(ledger.turns))


def tree_spending(root: Node, agent: Callable[[Node], str]) -> Spending:
    """The cost of a session and all below it. `agent` names the agent of a node."""
    below = {child.name: spent_below(child) for child in root.children}
    own = spending(root.entries, below)
    models, purposes = dict(own.by_model), dict(own.by_purpose)
    nodes = [NodeCost(root.address, agent(root), own.spent)]
    for node in list(walk(root))[1:]:
        node_spending = spending(node.entries)
        if not node.entries and node.spent.answers:  # only its parent has recorded it
            node_spending = Spending(
                node.spent, {"": node.spent}, {OTHER_PURPOSE: node.spent}
            )
        nodes.append(NodeCost(node.address, agent(node), node_spending.spent))
        for sums, node_sums in (
            (models, node_spending.by_model),
            (purposes, node_spending.by_purpose),
        ):
            for key, spent in node_sums.items():
                sums[key] = sums.get(key, Spent()) + spent
    spent = sum((part.spent for part in nodes), Spent())
    return Spending(spent, models, purposes, own.turns, tuple(nodes))


def spending_lines(
    costs: Spending, full: str = "", width: int = 80, *, turns: bool = False
) -> list[Line]:
    """By model, by purpose, and with `turns` by turn; `full` is a line on context usage."""
    if not costs.spent.answers:
        return [line("Nothing has been used yet.")]
    rows = list(_turn_lines(costs, width)) if turns else []
    several = len(costs.by_purpose) > 1
    tables = [costs.by_model, *([costs.by_purpose] if several else [])]
    if len(costs.nodes) > 1:
        tables.append({f"{n.address} {n.agent}".rstrip(): n.spent for n in costs.nodes})
    for table in tables:
        rows += [line("")] if rows else []
        rows += _sum_lines(table)
    if len(tables) > 1 or len(costs.by_model) > 1:
        rows.append(line(f"in all  {spent_row(costs.spent)}"))
    return [*rows, line(full, "dim")] if full else rows


def spending_document(
    costs: Spending, *, turns: bool = True, session_id: str | UnsetType = UNSET
) -> SpendingDocument:
    used = usage_fields
    by_turn = [
        TurnUsed(turn=t.seq, words=t.words, outcome=t.outcome,
                 below=Used(**used(t.below)), **used(t.spent))
        for t in costs.turns
    ]  # fmt: skip
    return SpendingDocument(
        **used(costs.spent),
        session_id=session_id,
        models=[ModelUsed(model=m, **used(s)) for m, s in costs.by_model.items()],
        purposes=[PurposeUsed(purpose=p, **used(s)) for p, s in costs.by_purpose.items()],
        nodes=[
            NodeUsed(address=n.address, agent=n.agent, **used(n.spent)) for n in costs.nodes
        ],
        turns=by_turn if turns else UNSET,
    )


def _sum_lines(sums: Mapping[str, Spent]) -> Iterator[Line]:
    width = max(cells(escape_to_one_line(name) or "?") for name in sums)
    for name, spent in sums.items():
        shown = escape_to_one_line(name) or "?"
        yield line(f"{shown}{' ' * (width - cells(shown))}  {spent_row(spent)}")


def _turn_lines(costs: Spending, width: int) -> Iterator[Line]:
    number = 0
    for turn in costs.turns:
        number += bool(turn.seq)
        head = f"{number:>3}  " if turn.seq else "     "
        words = " ".join(visible(turn.words).split())
        yield (("dim", head), ("person", cut(words, width - len(head))))
        yield line(f"     {spent_row(turn.spent)}{_state(turn)}")
        if turn.below.answers:
            yield line(f"     {spent_row(turn.below)} by its subagents")


def _state(turn: TurnCost) -> str:
    if not turn.seq or turn.outcome in ("answered", "final"):
        return ""
    return f" · {turn.outcome.replace('_', ' ') or 'running'}"


def budget_lines(view: View, limits: Budget) -> list[Line]:
    """Limits and usage, one line each. `limits` is the budget in the settings."""
    budget = budget_of(view, limits)
    if budget == NO_LIMIT:
        return [
            line("No budget: a turn may use up whatever it needs. /budget USD sets one.")
        ]
    origin = "as it is set" if view.rights.budget is None else "chosen for this session"
    head = line(f"One turn may use up, {origin}:")
    ended = "the last turn" if view.turn.outcome else ""
    turn = "this turn" if view.turn.seq else ended
    return [head, *_rows(view, budget, turn)]


def budget_text(budget: Budget) -> str:
    """The limits of a budget in a few words."""
    limits = (
        "" if budget.dollars is None else dollars(budget.dollars),
        "" if budget.tokens is None else f"{tokens(budget.tokens)} tokens",
        "" if budget.calls is None else f"{budget.calls} model calls",
        "" if budget.seconds is None else duration(budget.seconds),
    )
    return ", ".join(limit for limit in limits if limit) or "whatever it needs"


def _rows(view: View, budget: Budget, turn: str) -> Iterator[Line]:
    spent, usage = view.turn.spent, budget_used(view)
    if budget.dollars is not None:
        left = max(0.0, budget.dollars - usage.dollars)
        reservation = _reservation_note(
            dollars(usage.reserved_dollars), usage.reserved_dollars
        )
        unpriced_note = ", and more whose price is not known" if spent.unpriced else ""
        text = f"{estimate_sign(spent.usage)}{dollars(spent.dollars)} used{reservation}{unpriced_note}, {dollars(left)} left"
        yield _row(dollars(budget.dollars), text, turn)
    if budget.tokens is not None:
        left = max(0, budget.tokens - usage.tokens)
        reservation = _reservation_note(
            tokens(usage.reserved_tokens), usage.reserved_tokens
        )
        text = f"{estimate_sign(spent.usage)}{tokens(spent.usage.uncached)} used{reservation}, {tokens(left)} left"
        unit = "uncached tokens, while the price is not known"
        yield _row(f"{tokens(budget.tokens)} {unit}", text, turn)
    if budget.calls is not None:
        left = max(0, budget.calls - usage.calls)
        text = f"{spent.answers} made, {left} left"
        yield _row(f"{budget.calls} model calls", text, turn)
    if budget.seconds is not None:
        duration_text = f"{duration(usage.seconds)} so far"
        yield _row(duration(budget.seconds), duration_text, turn if view.turn.seq else "")


def _reservation_note(amount_text: str, amount: float) -> str:
    return f", {amount_text} reserved" if amount else ""


def _row(limit: str, model: str, turn: str) -> Line:
    about = f"  ({turn}: {model})" if turn else ""
    return (("strong", f"  {limit}"), ("dim", about))
