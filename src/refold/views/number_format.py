"""Formats tokens, money, durations and sizes as short texts."""

from typing import Literal

from refold.journal.events.kinds import Outcome
from refold.values.usage import Spent, Usage
from refold.views.escape import visible
from refold.views.styled import Line, line


def turn_line(spent: Spent, last: Usage, size: int, seconds: float) -> Line:
    """Return the usage of a turn as a line, with the share of the context window.

    The share is computed from `last`, the usage of the newest response, and from `size`, the
    size of the window in tokens.
    """
    if spent.usage == Usage():  # stopped before the provider reported usage
        return line(duration(seconds), "dim")
    share = window_share(last, size)
    parts = [_tokens(spent.usage), share, money(spent), duration(seconds)]
    return line(" · ".join(part for part in parts if part), "dim")


def outcome_line(outcome: Outcome | Literal[""], reason: str) -> Line | None:
    """Return a line on how a turn ended and what the user can do; None if it ended normally."""
    reason = visible(reason)
    # The reason may end with the command that continues the turn; a terminal has keys for that.
    short = reason.partition("; continue")[0]
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
    """Return the share of the context window that is used after the newest response.

    `last` is the usage of that response, `size` the size of the window in tokens. Return ""
    if either is unknown.
    """
    if not size or not last.input:
        return ""
    percent = 100 * (last.input + last.output) / size
    return f"{min(100, round(percent))}% of window" if percent >= 1 else "<1% of window"


def money(spent: Spent) -> str:
    """Return the cost; "" if it is completely unknown.

    The text begins with "at least" if a part of the cost is unknown, and has the mark "~" if
    a part is estimated.
    """
    if spent.unpriced == spent.answers:
        return ""
    sign = "at least " if spent.unpriced else ""
    return f"{sign}{estimate_sign(spent.usage)}{dollars(spent.dollars)}"


def estimate_sign(usage: Usage) -> str:
    """Return "~" if a part of the usage is estimated; otherwise ""."""
    return "~" if usage.estimated else ""


def spent_row(spent: Spent) -> str:
    """Return the tokens and the cost of some responses. An unknown price is named as unknown."""
    if not spent.answers:
        return "nothing"
    if spent.usage == Usage() and spent.unpriced:  # stopped before usage was reported
        return "not counted by the provider"
    return f"{_tokens(spent.usage)} · {money(spent) or 'price unknown'}"


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 or not amount else f"${amount:.4f}"


def tokens(count: int) -> str:
    """Return a number of tokens as a short text, such as "12.3k"."""
    if count < 10_000:
        return f"{count:,}"
    if count < 999_950:  # larger numbers would be rounded to 1000.0k
        return f"{count / 1000:.1f}k"
    return f"{count / 1e6:,.2f}".rstrip("0").rstrip(".") + "M"


def duration(seconds: float) -> str:
    """Return a duration as a short text, such as "1.5 s" or "2 min 05 s"."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left:02} s"


def size_text(count: int) -> str:
    """Return a number of bytes as a short text, such as "1.5 MB"."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return count_with_noun(count, "byte")


def count_with_noun(count: int, noun: str) -> str:
    """Return a count with its noun: "1 byte", "2 bytes"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tokens(usage: Usage) -> str:
    """Return the numbers of input and output tokens. "~" marks an estimate."""
    cached = f" ({tokens(usage.cached)} cached)" if usage.cached else ""
    sign = "~" if usage.estimated else ""
    return f"{sign}{tokens(usage.input)} in{cached} · {sign}{tokens(usage.output)} out"
