"""Full-text search: which text of a session is indexed, and how a search is written.

Indexed are messages, responses, calls in short, and the beginning and end of results.
SQLite's tokenizer takes text between spaces for a word. Some languages put none between
words, so each of their letters is indexed as a word, and searched for the same way.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec import Raw

from refold.errors import BadInput
from refold.journal.events.kinds import (
    Ended,
    Event,
    ModelAnswered,
    ModelFailed,
    NestedCallMade,
    PlanAnswered,
    Renamed,
    Said,
    Settled,
    Tagged,
    Titled,
)
from refold.values.messages import ToolCall

KINDS = frozenset(
    kind.__name__
    for kind in (
        Said, ModelAnswered, ModelFailed, Ended, NestedCallMade, PlanAnswered, Settled, Renamed,
        Tagged, Titled,
    )
)  # fmt: skip
MOST_SAID = 20_000  # characters that a person or a model said at once
MOST_RESULT = 2_000  # of what a call gave
_MOST_ARGUMENT = 300
_MOST_CALL = 600
# Kana, Han, Hangul; Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "([\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
_APART = "\x01"  # stands behind such a letter; a sign like any other to the tokenizer
_NO_TEXT = re.compile("[\x00-\x03]")  # of ours are this sign and those of `hit`


def words_of(event: Event) -> tuple[str, str] | None:
    """Who said it, and the text; None if there is nothing to be found."""
    who, text = _said(event)
    return (who, kept(text)) if text and not text.isspace() else None


def kept(text: str) -> str:
    """`text` as it is indexed and searched for."""
    if text.isascii() and text.isprintable():
        return text
    clean = _NO_TEXT.sub(" ", text).encode("utf-8", "replace").decode("utf-8")
    return clean if clean.isascii() else _UNSPACED.sub(rf"\1{_APART}", clean)


def shown(text: str) -> str:
    """`text` from the index as it was before."""
    return text.replace(_APART, "")


def _said(event: Event) -> tuple[str, str]:
    match event:
        case Said(words, sender):
            return sender, words[:MOST_SAID]
        case ModelAnswered(message):
            parts = (message.text[:MOST_SAID], *map(_call, message.calls))
            return "model", "\n".join(filter(None, parts))
        case ModelFailed(partial_text=words, dropped=False):
            return "model", words[:MOST_SAID]
        case Ended(text=text):
            return "tool", _ends(text)
        case NestedCallMade(call):
            return "code", _call(call)
        case _:
            return _said_beside(event)


def _said_beside(event: Event) -> tuple[str, str]:
    match event:
        case Settled(text=text):
            return "model", _ends(text)
        case PlanAnswered(text=text):
            return "person", text[:MOST_SAID]
        case Renamed(name):
            return "name", name
        case Titled(title):
            return "title", title
        case Tagged(tags):
            return "tags", " ".join(tags)
        case _:
            return "", ""


def _call(call: ToolCall) -> str:
    """The name of the tool and the texts in its arguments."""
    texts = (text[:_MOST_ARGUMENT] for text in _texts(call.arguments))
    return " ".join((call.name, *texts))[:_MOST_CALL]


def _texts(arguments: Raw) -> Iterator[str]:
    try:
        found = msgspec.json.decode(arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    yield from _strings(found)


def _strings(found: Mapping[str, object]) -> Iterator[str]:
    for value in found.values():
        match value:
            case str(text):
                yield text
            case list():
                given = cast("list[object]", value)
                yield from (each for each in given if isinstance(each, str))
            case _:
                continue


def _ends(text: str) -> str:
    """The beginning and the end: long output mostly repeats itself between them."""
    if len(text) <= MOST_RESULT:
        return text
    half = MOST_RESULT // 2
    return f"{text[:half]} … {text[-half:]}"


MOST_WORDS = 40
LONGEST = 10_000  # characters
_TERM = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
_LETTER = re.compile(r"[^\W_]")


def asked(text: str) -> str:
    """The FTS5 expression for what the user typed. Raises `BadInput` if it is empty.

    All words must be found, in any order; "several words" as a phrase; `word*` is a prefix.
    Other syntax of SQLite is taken literally.
    """
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
            'most (put "…" around them to search for the exact phrase)'
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
