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
    """Return the rows of a command: name and state, command line, and last output line.

    `output` is the last output line while the command runs. The first row also has the
    duration, except for a command of another session.
    """
    end = command.end
    end_time, last_output = now, output
    if end is not None:
        style: Style = _OUTCOME_STYLES.get(end.outcome, "warn")
        state = end_text(end)
        end_time = command.ended_at
        last_output = last_line(end.text)
    elif command.foreign:
        style, state = "dim", "of another session"
        end_time = 0.0  # unknown
    else:
        style, state = "accent", "runs"
    has_times = end_time > command.at > 0
    duration_text = f" · {duration(end_time - command.at)}" if has_times else ""
    head: Line = (
        ("strong", f"{escape_to_one_line(command.name)} "),
        (style, escape_to_one_line(state)), ("dim", duration_text),
    )  # fmt: skip
    rows = [head, line(f"  {escape_to_one_line(command.started.command)}")]
    if last_output:
        rows.append(line(f"  {escape_to_one_line(last_output)}", "dim"))
    return rows


def last_line(text: str) -> str:
    """Return the last line of `text` that is not blank, or ""."""
    return next((row for row in reversed(text.split("\n")) if row.strip()), "")
