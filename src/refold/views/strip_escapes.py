"""Removes terminal control sequences from the text of a clipboard or a command. Pure.

This module is for text whose reader does not need the sequences. Where a person must see
them, `views.escape` makes them visible instead.
"""

import re

from refold.values.text import clean

# Sequences of ECMA-48: CSI sequences, strings up to their end, and those with one letter.
_ESCAPE_PATTERN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Controls, direction controls, and letters that a model reads but a person cannot see.
_UNSEEN_PATTERN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]"
)
_BACKSPACE_PATTERN = re.compile(r"[^\n\x08]\x08")


def without_escapes(text: str) -> str:
    """Return the text without terminal control sequences and invisible characters.

    Tabs stay, and every line end becomes a line feed.
    """
    if text.isprintable():
        return text
    lines = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN_PATTERN.sub("", _ESCAPE_PATTERN.sub("", lines))


def render_lines(output: str) -> str:
    """Return the text that a terminal shows after this output, which may overwrite its own
    lines.
    """
    text = _ESCAPE_PATTERN.sub("", clean(output).replace("\r\n", "\n"))
    lines = [_last_version(line) for line in text.split("\n")]
    return _UNSEEN_PATTERN.sub("", "\n".join(lines))


def _last_version(line: str) -> str:
    """Return what a line shows in the end, if it was overwritten as by a progress bar."""
    if "\x08" in line:
        line = _BACKSPACE_PATTERN.sub("", line)
    shown = [part for part in line.split("\r") if part.strip()]
    return shown[-1] if shown else ""
