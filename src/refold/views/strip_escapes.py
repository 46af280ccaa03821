"""Removes terminal sequences from text of a clipboard or a command. Pure.

They are removed because a person or a model needs only the text. `views.escape` makes them visible
where they must be seen.
"""

import re

from refold.values.text import clean

# Sequences of ECMA-48: CSI; strings up to their end; those with one letter.
_ESCAPE_PATTERN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Controls; direction controls; letters that a model reads but a person cannot see.
_UNSEEN_PATTERN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]"
)
_BACKSPACE_PATTERN = re.compile(r"[^\n\x08]\x08")


def without_escapes(text: str) -> str:
    """Remove sequences. Tabs and line feeds stay, other line ends become line feeds."""
    if text.isprintable():
        return text
    lines = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN_PATTERN.sub("", _ESCAPE_PATTERN.sub("", lines))


def render_lines(output: str) -> str:
    """The final lines on a screen, where later output has overwritten earlier."""
    text = _ESCAPE_PATTERN.sub("", clean(output).replace("\r\n", "\n"))
    lines = [_last_version(line) for line in text.split("\n")]
    return _UNSEEN_PATTERN.sub("", "\n".join(lines))


def _last_version(line: str) -> str:
    """The last version of a line that was overwritten, as by a progress bar."""
    if "\x08" in line:
        line = _BACKSPACE_PATTERN.sub("", line)
    shown = [part for part in line.split("\r") if part.strip()]
    return shown[-1] if shown else ""
