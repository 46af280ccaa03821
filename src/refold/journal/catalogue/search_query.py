"""What a person types to search, and what SQLite is asked for it.

Words all have to be there, in any order and place of a message; "several words" as they
stand; and with a star at its end, a word is the beginning of one. Everything else that
SQLite's own language knows is a letter like any other here: it would only be an error in
disguise.
"""

import re

from refold.errors import BadInput
from refold.journal.catalogue.search_text import kept

MOST_WORDS = 40
LONGEST = 10_000  # characters
_TERM = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
_LETTER = re.compile(r"[^\W_]")


def asked(text: str) -> str:
    """The expression for FTS5. Raises `BadInput` where there is nothing to look for."""
    if len(text) > LONGEST:
        raise BadInput(
            f"{text[:30]!r}… is too long to search for: {len(text)} characters, and "
            f"{LONGEST:,} are the most"
        )
    terms = list(dict.fromkeys(_terms(text)))
    if not terms:
        raise BadInput(
            f"there is nothing to search for in {text!r}: give a word, or several"
        )
    if len(terms) > MOST_WORDS:
        raise BadInput(
            f"{len(terms)} words are too many to search for at once: {MOST_WORDS} are the "
            'most (put "…" around them to find them as they stand)'
        )
    return " ".join(terms)


def _terms(text: str) -> list[str]:
    found = list[str]()
    for match in _TERM.finditer(kept(text)):
        phrase, star, word = match.groups()
        if word is not None:
            phrase, star = word.rstrip("*"), "*" if word.endswith("*") else ""
        if _LETTER.search(phrase):
            found.append('"' + phrase.replace('"', " ") + '"' + (" *" if star else ""))
    return found
