"""Finds the line in a program's output that explains why the program exited. Pure.

Node.js prints the error above its trace and its own version last; Python prints the exception
below its trace. `transports` runs the programs.
"""

import re
from itertools import pairwise

_MAX_CHARS = 300
_TRACE_LINE = re.compile(
    r"^[ |+]*(?:\+ )?(?:Exception Group )?Traceback \(most recent call last\)"
)
_ERROR_LINE = re.compile(
    r"(?:Uncaught )?(?:[A-Za-z_][\w.$]*)?(?:Error|Exception|Exit|Interrupt|Warning)\b[\w$]*"
    r"(?: \[[\w-]+\])?(?::|$)"
)
_EXCEPTION_GROUP = re.compile(r"[\w.]*ExceptionGroup:")
_NODE_VERSION = re.compile(r"Node\.js v\d")
_NODE_FRAME = re.compile(r"\s+at ")
_FRAME_MARKS = " |+-"  # the characters that Python puts before an exception group's lines


def failure_line(output: str) -> str:
    """Return the error of the last trace, or else the last line of the output.

    Return "" for an empty output.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    trace_starts = [n for n, line in enumerate(lines) if _TRACE_LINE.match(line)]
    if trace_starts and (error := _python_error(lines[trace_starts[-1] :])):
        return error[:_MAX_CHARS]
    if lines and _NODE_VERSION.match(lines[-1]):
        lines = lines[:-1]
        errors = (line for line in lines if _ERROR_LINE.match(line))
        if error := next(errors, ""):
            return error.strip()[:_MAX_CHARS]
    if not lines:
        return ""
    last_line = lines[-1]
    if last_line.strip() == "}" or _NODE_FRAME.match(last_line):
        return _logged_node_error(lines)[:_MAX_CHARS]
    return last_line.strip()[:_MAX_CHARS]


def _logged_node_error(lines: list[str]) -> str:
    """Return the line above the last trace of Node.js, where a program logs its error.

    If there is no such line, return the last line.
    """
    line_above_trace = ""
    for line, next_line in pairwise(lines):
        if _NODE_FRAME.match(next_line) and not _NODE_FRAME.match(line):
            line_above_trace = line.strip()
    return line_above_trace or lines[-1].strip()


def _python_error(lines: list[str]) -> str:
    """Return the exception below the trace that begins at `lines[0]`.

    Of an exception group, return the last exception. Return "" if there is none.
    """
    if lines[0].lstrip().startswith("Traceback"):
        # Lines of the trace are indented more than its first line, those of the exception are not.
        indent = _indent(lines[0])
        return next((line.strip() for line in lines[1:] if _indent(line) <= indent), "")
    # The lines of an exception group have a frame.
    bare_lines = [line.strip(_FRAME_MARKS) for line in lines[1:]]
    for line in reversed(bare_lines):
        if _ERROR_LINE.match(line) and not _EXCEPTION_GROUP.match(line):
            return line
    return ""


def _indent(line: str) -> int:
    """Return the number of blanks at the start of a line."""
    return len(line) - len(line.lstrip())
