"""Tokens, money, time and amounts in few words."""

from typing import Literal

from refold.journal.events import Outcome
from refold.values.usage import Spent, Usage
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


def ending(outcome: Outcome | Literal[""], reason: str) -> Line | None:
    """How a turn ended, where it was no plain answer, and what can be done."""
    reason = visible(reason)
    short = reason.partition("; continue")[0]  # here, other keys do it
    match outcome:
        case "" | "answered" | "final" | "plan_ready":
            return None
        case "step_limit":
            return line(f"step limit: {short}. Press Enter to go on.", "warn")
        case "interrupted" | "cancelled":
            if reason.startswith("stopped"):
                return line(reason, "warn")
            more = f": {reason}" if reason not in ("", outcome) else ""
            return line(f"stopped{more}", "warn")
        case "failed":
            return line(f"failed: {reason}", "bad")
        case "budget":
            how = "/budget raises it; Enter goes on with as much again."
            return line(f"budget: {short}. {how}", "warn")
        case "stuck":
            how = "Say what to do instead, or /continue."
            return line(f"stuck: {short}. {how}", "warn")
        case _:
            return line(f"{outcome}: {reason}", "warn")


def window(last: Usage, size: int) -> str:
    """How full the model's window is after its last answer, where its size is known."""
    if not size or not last.input:
        return ""
    percent = 100 * (last.input + last.output) / size
    return f"{min(100, round(percent))}% of window" if percent >= 1 else "<1% of window"


def money(spent: Spent) -> str:
    """What it cost; "" where nothing is known. What is not known, or estimated, is said."""
    if spent.unpriced == spent.answers:
        return ""
    return f"{about(spent)}{dollars(spent.dollars)}{' and more' if spent.unpriced else ''}"


def about(spent: Spent) -> str:
    """What stands before a sum of which a part is estimated."""
    return "~" if spent.usage.estimated else ""


def spent_row(spent: Spent) -> str:
    """Tokens and money of some answers. What nobody knows the price of is said so."""
    if not spent.answers:
        return "nothing"
    if spent.usage == Usage() and spent.unpriced:  # broken off before it was counted
        return "not counted by the provider"
    return f"{_tokens(spent.usage)} · {money(spent) or 'price unknown'}"


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 or not amount else f"${amount:.4f}"


def tokens(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    if count < 999_950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1e6:,.2f}".rstrip("0").rstrip(".") + "M"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left:02} s"


def in_bytes(count: int) -> str:
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return many(count, "byte")


def many(count: int, what: str) -> str:
    """So many of a thing."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _tokens(usage: Usage) -> str:
    cached = f" ({tokens(usage.cached)} cached)" if usage.cached else ""
    sign = "~" if usage.estimated else ""
    return f"{sign}{tokens(usage.input)} in{cached} · {sign}{tokens(usage.output)} out"
