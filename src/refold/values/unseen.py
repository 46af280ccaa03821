"""Text without the letters that nobody can see. Pure.

What a person cannot see in a file may be there for the model only: marks that turn the
writing around, tags, letters of no width, long rows of marks that only choose how a
letter looks. Showing such letters as signs is the screens' business.
"""

import re

# What is neither a letter nor a line end or tab, in text that is ASCII.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Emoji and Persian or Indic words are written with these.
_JOINERS, _STYLES = "\u200c\u200d", "\ufe0e\ufe0f"
# They count as letters, and leave at most a gap.
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")


def seen(text: str) -> str:
    """`text` without what no reader of it could see."""
    if text.isascii():
        return _CONTROLS.sub("", text)
    letters, before = list[str](), " "
    for letter in text:
        if may_follow(letter, before):
            if letter.isprintable() or letter in "\n\t" or letter in _JOINERS:
                before = letter
            elif letter.isspace():
                before = " "
            else:
                continue
            letters.append(before)
    return "".join(letters)


def may_follow(letter: str, before: str) -> bool:
    """Can a reader see this letter, or what it does to the one that was kept before it?

    Of marks that only shape a letter one of a kind may stand there: in a row of them
    whole sentences can be hidden.
    """
    if letter in _JOINERS:
        return before > "\x7f" and before not in _JOINERS
    if letter in _STYLES:
        return before > "\x7f" and before not in _JOINERS and before not in _STYLES
    rare = "\ufe00" <= letter <= "\ufe0d" or "\U000e0100" <= letter <= "\U000e01ef"
    return not rare and letter not in _FILLERS
