"""Removes terminal sequences from text of a clipboard or a command. Pure.

They are removed because a person or a model needs only the text. `views.escape` makes them visible
where they must be seen.
"""

import re

from refold.values.text import clean

# Orders as ECMA-48 has them: CSI; strings up to their end; what goes with one letter.
_ESCAPE_PATTERN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Controls; what turns the writing round; letters that a model reads and nobody sees.
_UNSEEN_PATTERN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]"
)
_BACKSPACE_PATTERN = re.compile(r"[^\n\x08]\x08")


def without_escapes(text: str) -> str:
    """What was written; line feeds and tabs stay, other line ends become line feeds."""
    if text.isprintable():
        return text
    lines = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN_PATTERN.sub("", _ESCAPE_PATTERN.sub("", lines))


def render_lines(printed: str) -> str:
    """What stood on a screen in the end, as far as lines were written over."""
    text = _ESCAPE_PATTERN.sub("", clean(printed).replace("\r\n", "\n"))
    lines = [_last(line) for line in text.split("\n")]
    return _UNSEEN_PATTERN.sub("", "\n".join(lines))


def _last(line: str) -> str:
    """A progress bar begins its line anew each time: the last time counts."""
    if "\x08" in line:
        line = _BACKSPACE_PATTERN.sub("", line)
    shown = [part for part in line.split("\r") if part.strip()]
    return shown[-1] if shown else ""
