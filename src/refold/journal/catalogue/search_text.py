"""Full-text search: the text of a session that is indexed, and the syntax of a search.

Messages, responses, short forms of calls, and the beginning and end of results are indexed.
SQLite's tokenizer takes the text between spaces for a word. In languages without spaces
between words, each letter is indexed as a word, and searched for the same way.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec import Raw, Struct

from refold.errors import BadInput
from refold.journal.events.kinds import (
    Ended,
    Event,
    ModelAnswered,
    ModelFailed,
    NestedCallMade,
    PlanAnswered,
    Said,
    Settled,
)
from refold.journal.events.setting_events import Renamed, Tagged, Titled
from refold.values.messages import ToolCall

SEARCH_KINDS = frozenset(
    kind.__name__
    for kind in (
        Said, ModelAnswered, ModelFailed, Ended, NestedCallMade, PlanAnswered, Settled, Renamed,
        Tagged, Titled,
    )
)  # fmt: skip
MAX_MESSAGE_CHARS = 20_000
MAX_RESULT_CHARS = 2_000
_MAX_ARGUMENT_CHARS = 300
_MAX_CALL_CHARS = 600
# Kana, Han, Hangul; Thai, Lao, Burmese, Khmer.
_UNSPACED_PATTERN = re.compile(
    "([\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
_LETTER_MARK = "\x01"  # follows such a letter; the tokenizer takes it for a separator
_CONTROL_PATTERN = re.compile("[\x00-\x03]")  # used as marks


def words_of(event: Event) -> tuple[str, str] | None:
    """Return the author and the text to index; None if the event has no such text."""
    speaker, text = _text_of(event)
    return (speaker, to_index(text)) if text and not text.isspace() else None


def to_index(text: str) -> str:
    """Return `text` in the form that is indexed and searched for."""
    if text.isascii() and text.isprintable():
        return text
    without_marks = _CONTROL_PATTERN.sub(" ", text)
    # SQLite takes no lone surrogates, so "?" replaces them.
    clean = without_marks.encode("utf-8", "replace").decode("utf-8")
    if clean.isascii():
        return clean
    # In a script without spaces, each letter is indexed as a word.
    return _UNSPACED_PATTERN.sub(rf"\1{_LETTER_MARK}", clean)


def from_index(text: str) -> str:
    """Return the original of an indexed text."""
    return text.replace(_LETTER_MARK, "")


def _text_of(event: Event) -> tuple[str, str]:
    """Return the author and the text of an event; both are "" if it has no text to index."""
    match event:
        case Said(words, sender):
            return sender, words[:MAX_MESSAGE_CHARS]
        case ModelAnswered(message):
            parts = (message.text[:MAX_MESSAGE_CHARS], *map(_call_text, message.calls))
            return "model", "\n".join(filter(None, parts))
        case ModelFailed(partial_text=words, dropped=False):
            return "model", words[:MAX_MESSAGE_CHARS]
        case Ended(text=text):
            return "tool", _beginning_and_end(text)
        case NestedCallMade(call):
            return "code", _call_text(call)
        case _:
            return _other_text_of(event)


def _other_text_of(event: Event) -> tuple[str, str]:
    """Return the author and text of a less frequent event, as `_text_of` does."""
    match event:
        case Settled(text=text):
            return "model", _beginning_and_end(text)
        case PlanAnswered(text=text):
            return "person", text[:MAX_MESSAGE_CHARS]
        case Renamed(name):
            return "name", name
        case Titled(title):
            return "title", title
        case Tagged(tags):
            return "tags", " ".join(tags)
        case _:
            return "", ""


def _call_text(call: ToolCall) -> str:
    """Return the name of the tool and the texts in its arguments."""
    texts = (text[:_MAX_ARGUMENT_CHARS] for text in _texts(call.arguments))
    return " ".join((call.name, *texts))[:_MAX_CALL_CHARS]


def _texts(arguments: Raw) -> Iterator[str]:
    """Yield the texts in the arguments of a call; none if they are not a JSON object."""
    try:
        values = msgspec.json.decode(arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    yield from _strings(values)


def _strings(values: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts among the values and in lists among the values.

    Texts that are nested deeper are left out.
    """
    for value in values.values():
        match value:
            case str(text):
                yield text
            case list():
                items = cast("list[object]", value)
                yield from (item for item in items if isinstance(item, str))
            case _:
                continue


def _beginning_and_end(text: str) -> str:
    """Return the beginning and the end of a long text; a short text is returned unchanged.

    The middle of long output is mostly repetitive.
    """
    if len(text) <= MAX_RESULT_CHARS:
        return text
    half = MAX_RESULT_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


MAX_WORDS = 40
MAX_SEARCH_CHARS = 10_000  # characters
# A phrase in quotes, perhaps with a star, or a word.
_TERM_PATTERN = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
_LETTER_PATTERN = re.compile(r"[^\W_]")


class SearchTerm(Struct, frozen=True):
    """A term of a search, in indexed form: one word, or several words as a phrase.

    If `is_prefix`, longer words that begin with the last word match, too.
    """

    phrase: str
    is_prefix: bool = False


def search_expression(text: str) -> str:
    """Return the FTS5 expression for the user's text.

    Raises `BadInput` if the text is empty or too long.
    """
    phrases = list[str]()
    for term in search_terms(text):
        phrase = '"' + term.phrase.replace('"', " ") + '"'
        phrases.append(f"{phrase} *" if term.is_prefix else phrase)
    return " ".join(phrases)


def search_terms(text: str) -> list[SearchTerm]:
    """Return the terms in the user's text. Raises `BadInput` if it is empty or too long.

    All terms must be found, in any order; "several words" is a phrase; `word*` is a prefix.
    Other syntax is taken literally.
    """
    if len(text) > MAX_SEARCH_CHARS:
        raise BadInput(
            f"{text[:30]!r}… is too long to search for: {len(text)} characters, and "
            f"{MAX_SEARCH_CHARS:,} are the most"
        )
    terms = list(dict.fromkeys(_terms(text)))
    if not terms:
        raise BadInput(
            f"there is nothing to search for in {text!r}: give a word, or several"
        )
    if len(terms) > MAX_WORDS:
        raise BadInput(
            f"{len(terms)} words are too many to search for at once: {MAX_WORDS} are the "
            'most (put "…" around them to search for the exact phrase)'
        )
    return terms


def _terms(text: str) -> Iterator[SearchTerm]:
    """Yield the terms in the user's text that have a letter or digit, as they are indexed."""
    for match in _TERM_PATTERN.finditer(to_index(text)):
        quoted_phrase, star_after_quotes, word = match.groups()
        if word is None:
            phrase, is_prefix = quoted_phrase, bool(star_after_quotes)
        else:
            phrase, is_prefix = word.rstrip("*"), word.endswith("*")
        if _LETTER_PATTERN.search(phrase):
            yield SearchTerm(phrase, is_prefix)
