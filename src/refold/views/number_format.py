"""Tokens, money, durations and sizes in a few characters."""

from typing import Literal

from refold.journal.events.kinds import Outcome
from refold.values.usage import Spent, Usage
from refold.views.escape import visible
from refold.views.styled import Line, line


def turn_line(spent: Spent, last: Usage, size: int, seconds: float) -> Line:
    """What a turn used, and the share of a window of `size` tokens.

    `last` is the usage of its newest response.
    """
    if spent.usage == Usage():  # stopped before the provider reported usage
        return line(duration(seconds), "dim")
    full = window_share(last, size)
    parts = [_tokens(spent.usage), full, money(spent), duration(seconds)]
    return line(" · ".join(part for part in parts if part), "dim")


def outcome_line(outcome: Outcome | Literal[""], reason: str) -> Line | None:
    """How a turn ended, unless it ended normally, and what the user can do."""
    reason = visible(reason)
    short = reason.partition("; continue")[0]  # other keys continue here
    match outcome:
        case "" | "answered" | "final" | "plan_ready":
            return None
        case "step_limit":
            return line(f"step limit: {short}. Press Enter to continue.", "warn")
        case "interrupted" | "cancelled":
            if reason.startswith("stopped"):
                return line(reason, "warn")
            detail = f": {reason}" if reason not in ("", outcome) else ""
            return line(f"stopped{detail}", "warn")
        case "failed":
            return line(f"failed: {reason}", "bad")
        case "budget":
            hint = "/budget raises it; Enter continues with the same amount again."
            return line(f"budget: {short}. {hint}", "warn")
        case "stuck":
            hint = "Say what to do instead, or /continue."
            return line(f"stuck: {short}. {hint}", "warn")
        case _:
            return line(f"{outcome}: {reason}", "warn")


def window_share(last: Usage, size: int) -> str:
    """The share of the context window after the last response, if the window is known."""
    if not size or not last.input:
        return ""
    percent = 100 * (last.input + last.output) / size
    return f"{min(100, round(percent))}% of window" if percent >= 1 else "<1% of window"


def money(spent: Spent) -> str:
    """The cost, or "". Unknown and estimated parts are marked."""
    if spent.unpriced == spent.answers:
        return ""
    sign = "at least " if spent.unpriced else ""
    return f"{sign}{estimate_sign(spent.usage)}{dollars(spent.dollars)}"


def estimate_sign(usage: Usage) -> str:
    """The sign before a sum that is partly estimated, or an empty text."""
    return "~" if usage.estimated else ""


def spent_row(spent: Spent) -> str:
    """Tokens and cost of some responses. An unknown price is shown as unknown."""
    if not spent.answers:
        return "nothing"
    if spent.usage == Usage() and spent.unpriced:  # stopped before usage was reported
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


def size_text(count: int) -> str:
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return count_with_noun(count, "byte")


def count_with_noun(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tokens(usage: Usage) -> str:
    cached = f" ({tokens(usage.cached)} cached)" if usage.cached else ""
    sign = "~" if usage.estimated else ""
    return f"{sign}{tokens(usage.input)} in{cached} · {sign}{tokens(usage.output)} out"
