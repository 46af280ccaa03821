"""`refold -p "/name words"`: a template or a skill instead of words, where nobody can be asked."""

import re

from refold.hall.app import App

_SHORTCUT = re.compile(r"/([\w:-]+)(?:\s+(.*))?", re.DOTALL)


def meant(text: str, words: str, app: App) -> tuple[str, str | None]:
    """The words, of which `text` was typed, `/name` spelled out; and what was typed, where
    that is not all of them.
    """
    if text.lstrip().startswith("/") and (said := expanded(text, app)) != text:
        return words.replace(text, said, 1), text
    return words, None if text == words else text


def expanded(text: str, app: App) -> str:
    """What is said instead of `text`; the same, where it is no shortcut.

    Raises `BadInput` where an argument is missing.
    """
    found = _SHORTCUT.fullmatch(text.strip())
    if found is None:
        return text
    from refold.cli.terminal.commands.table import names

    shortcuts, name = app.shortcuts(names()), found[1]
    if shortcuts.find(name) is None:
        return text
    return shortcuts.expanded(name, found[2] or "", {})
