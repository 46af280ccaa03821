"""`refold -p "/name words"`: a template or a skill instead of words, where nobody can be asked."""

import re

from refold.app import App
from refold.skills.shortcuts import Shortcuts
from refold.workspace import around

_SHORTCUT = re.compile(r"/([\w:-]+)(?:\s+(.*))?", re.DOTALL)


def expanded(text: str, app: App) -> str:
    """What is said instead of `text`; the same, where it is no shortcut.

    Raises `BadInput` where an argument is missing.
    """
    found = _SHORTCUT.fullmatch(text.strip())
    if found is None:
        return text
    from refold.cli.terminal.commands import names

    where = around(app.directory, app.paths, app.environ, trusted=app.briefing.trusted)
    shortcuts, name = Shortcuts(app.skills, where, names()), found[1]
    if shortcuts.find(name) is None:
        return text
    return shortcuts.expanded(name, found[2] or "", {})
