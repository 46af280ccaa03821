"""Tokens, money and time in few words."""

from collections.abc import Callable, Sequence

from refold.journal.events import Outcome
from refold.journal.fold import View
from refold.values.usage import Usage
from refold.views.cells import cells
from refold.views.escape import visible
from refold.views.styled import Line, line

Price = Callable[[str, Usage], float | None]  # US dollars; None: not known
Spent = Sequence[tuple[str, Usage]]  # by model


def turn_line(spent: Spent, size: int, seconds: float, price: Price) -> Line:
    """What a turn used, and how much of a window of `size` tokens its talk fills."""
    usage = sum((used for _, used in spent), Usage())
    if usage == Usage():  # stopped before the provider could tell
        return line(duration(seconds), "dim")
    full = window(spent[-1][1], size) if spent else ""
    parts = [_tokens(usage), full, money(spent, price), duration(seconds)]
    return line(" · ".join(part for part in parts if part), "dim")


def ending(outcome: Outcome, reason: str) -> Line | None:
    """How a turn ended, where it was no plain answer, and what can be done."""
    reason = visible(reason)
    match outcome:
        case "answered" | "final" | "plan_ready":
            return None
        case "step_limit":
            return line(f"step limit: {reason}. Press Enter to go on.", "warn")
        case "interrupted" | "cancelled":
            more = f": {reason}" if reason not in ("", outcome) else ""
            return line(f"stopped{more}", "warn")
        case "failed":
            return line(f"failed: {reason}", "bad")
        case _:
            return line(f"{outcome}: {reason}", "warn")


def cost_lines(view: View, price: Price) -> list[Line]:
    """What the session has used, model by model."""
    rows = [
        (model or "?", usage, price(model, usage)) for model, usage in view.account.by_model
    ]
    if not rows:
        return [line("Nothing has been used yet.")]
    wide = max(cells(visible(model)) for model, _, _ in rows)
    out = [
        line(
            f"{visible(model)}{' ' * (wide - cells(visible(model)))}  {_tokens(usage)}{_price(cost)}"
        )
        for model, usage, cost in rows
    ]
    if len(rows) > 1:
        total = money(view.account.by_model, price)
        out.append(
            line(
                f"{'in all':{wide}}  {_tokens(view.account.usage)}{f' · {total}' if total else ''}"
            )
        )
    if found := window(view.account.last, view.talk.briefed.window):
        out.append(line(found, "dim"))
    return out


def window(last: Usage, size: int) -> str:
    """How full the model's window is after its last answer, where its size is known."""
    if not size or not last.input:
        return ""
    percent = 100 * (last.input + last.output) / size
    return f"{min(100, round(percent))}% of window" if percent >= 1 else "<1% of window"


def money(spent: Spent, price: Price) -> str:
    costs = [price(model, usage) for model, usage in spent]
    known = [cost for cost in costs if cost is not None]
    return dollars(sum(known)) if known and len(known) == len(costs) else ""


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 or not amount else f"${amount:.4f}"


def tokens(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:,.1f}k"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left:02} s"


def _tokens(usage: Usage) -> str:
    cached = f" ({tokens(usage.cached)} cached)" if usage.cached else ""
    return f"{tokens(usage.input)} in{cached} · {tokens(usage.output)} out"


def _price(cost: float | None) -> str:
    return "" if cost is None else f" · {dollars(cost)}"
