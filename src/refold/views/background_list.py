"""Shows a session's background commands as rows: state, time, command and last line. Pure.

`children_list` shows the subagents; `journal/state/background.py` defines the commands.
"""

from collections.abc import Mapping

from refold.journal.state.background import BackgroundCommand, end_text
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration
from refold.views.styled import Line, Style, line

_OUTCOME_STYLES: Mapping[str, Style] = {"done": "good", "failed": "bad"}


def command_rows(command: BackgroundCommand, now: float, output: str) -> list[Line]:
    """Return the rows of a command. While it runs, `output` is the last line of its output."""
    end = command.end
    style: Style = _OUTCOME_STYLES.get(end.outcome, "warn") if end else "accent"
    state, until, last = "runs", now, output
    if end is not None:
        state, until, last = end_text(end), command.ended_at, last_line(end.text)
    elif command.foreign:
        state, style, until = "of another session", "dim", 0.0
    time = f" · {duration(until - command.at)}" if until > command.at > 0 else ""
    head: Line = (
        ("strong", f"{escape_to_one_line(command.name)} "), (style, escape_to_one_line(state)), ("dim", time),
    )  # fmt: skip
    rows = [head, line(f"  {escape_to_one_line(command.started.command)}")]
    return [*rows, line(f"  {escape_to_one_line(last)}", "dim")] if last else rows


def last_line(text: str) -> str:
    """Return the last line of `text` that is not blank, or ""."""
    return next((row for row in reversed(text.split("\n")) if row.strip()), "")
