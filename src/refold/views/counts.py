"""Tokens, money and time in few words."""

from refold.journal.events import Outcome
from refold.journal.fold import View
from refold.values.usage import Spent, Usage
from refold.views.cells import cells
from refold.views.escape import visible
from refold.views.styled import Line, line


def turn_line(spent: Spent, last: Usage, size: int, seconds: float) -> Line:
    """What a turn used, and how much of a window of `size` tokens its talk fills.

    `last` is what its newest answer used.
    """
    if spent.usage == Usage():  # stopped before the provider could tell
        return line(duration(seconds), "dim")
    full = window(last, size)
    parts = [_tokens(spent.usage), full, money(spent), duration(seconds)]
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
            if reason.startswith("stopped"):
                return line(reason, "warn")
            more = f": {reason}" if reason not in ("", outcome) else ""
            return line(f"stopped{more}", "warn")
        case "failed":
            return line(f"failed: {reason}", "bad")
        case _:
            return line(f"{outcome}: {reason}", "warn")


def cost_lines(view: View) -> list[Line]:
    """What the session has used, model by model."""
    rows = [(visible(model or "?"), spent) for model, spent in view.account.by_model]
    if not rows:
        return [line("Nothing has been used yet.")]
    if len(rows) > 1:
        rows.append(("in all", view.account.spent))
    wide = max(cells(name) for name, _ in rows)
    out = [
        line(f"{name}{' ' * (wide - cells(name))}  {_row(spent)}") for name, spent in rows
    ]
    if found := window(view.account.last, view.talk.briefed.window):
        out.append(line(found, "dim"))
    return out


def window(last: Usage, size: int) -> str:
    """How full the model's window is after its last answer, where its size is known."""
    if not size or not last.input:
        return ""
    percent = 100 * (last.input + last.output) / size
    return f"{min(100, round(percent))}% of window" if percent >= 1 else "<1% of window"


def money(spent: Spent) -> str:
    """What it cost. Where some of it is not known, that is said; "" where nothing is."""
    if spent.unpriced == spent.answers:
        return ""
    return f"{dollars(spent.dollars)}{' and more' if spent.unpriced else ''}"


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


def _row(spent: Spent) -> str:
    return f"{_tokens(spent.usage)} · {money(spent) or 'price unknown'}"
