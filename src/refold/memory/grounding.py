"""Whether a note follows from what the user said: by comparing words, without a model.

A file or a page may have misled the model that wrote a note. So a note is saved only if
its words are in the user's messages: all that looks like a name, a number, a path or an
address literally, and nearly all other words in any inflection. A "not" must not be lost
or added. It knows words of some languages; for others it is only stricter. Pure.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from refold.memory.function_words import (
    DENIAL_WORDS,
    DENYING_SIGNS,
    EMPTY_WORDS,
    TURN_WORDS,
)

_CLAUSE_END = re.compile(
    r"[.!?](?=\s|$)|[;,\n。！？、，：；]|:(?=\s)"
    r"|\s(?:but|sondern|aber|mais|sino|pero|ma|mas|maar|но)\s"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[;\n。！？；]")
_NOT_PATTERN = re.compile(r"([^\W_]+)\snot\s(?=\w)")
_EDGE_MARKS = "\"'`«»„“”‘’()[]{}<>.,;:!?…*_"
_HARD_PATTERN = re.compile(r"[\d/\\@=$~%#<>|_+^&]|^-|[^\W_][.:][^\W_]|[({\[]")
# Scripts without blanks: pairs of letters stand for words.
_DENSE_SCRIPTS = (
    "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
)
_WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_MIN_OVERLAP = 0.75  # of the words of a forbidding note, in its replacement
_WORDS_PER_MISS = 6  # one in this number of words need not be the user's


def is_grounded(text: str, words: Sequence[str], source: str = "") -> bool:
    """Whether the note `text` follows from these messages of the user.

    `source` is a note that this one replaces: its words may stay, but new ones must be the
    user's.
    """
    all_words = "\n".join(words)
    if not _has_literals(text, f"{all_words}\n{source}"):
        return False
    mine, theirs, old = (
        _all_words(text),
        _all_words(all_words),
        _all_words(source),
    )
    new = [word for word in mine if not _is_among(word, old)]
    asked = new or mine  # if nothing is new, the user must have said all of it
    missing = [word for word in asked if not _is_among(word, theirs)]
    may_miss = 0 if source else len(mine) // _WORDS_PER_MISS
    if not mine or len(missing) > may_miss:
        return False
    if not all(_is_in_one_sentence(clause, all_words, old) for clause in _clauses(text)):
        return False
    return _has_same_sense(text, [*words, *([source] if source else [])])


def may_replace(old: str, new: str) -> bool:
    """Whether one note may replace another. One that forbids must keep most of its words.

    Otherwise a model could be talked into trading a "never" for something harmless.
    """
    mine, theirs = (
        frozenset(map(_stem, _content_words(new))),
        frozenset(map(_stem, _content_words(old))),
    )
    share = len(mine & theirs) / len(theirs) if theirs else 0.0
    return not forbids(old) or share >= _MIN_OVERLAP


def lifts_prohibition(old: str, new: str) -> bool:
    """Whether the new note would allow what the old one forbids."""
    return forbids(old) and not forbids(new) and may_replace(old, new)


def is_stated_in_order(text: str, words: Sequence[str]) -> bool:
    """Whether the user says the words of a note in one sentence, and in its order.

    Words that are merely all present cannot replace a "never".
    """
    wanted = _all_words(text)
    return any(
        _is_in_order(wanted, _all_words(clause))
        for message in words
        for clause in _clauses(message)
    )


def forbids(note: str) -> bool:
    """Whether the note says "not" or "never"."""
    return any(map(_is_negative, _clauses(note)))


def normalize(text: str) -> str:
    """`text` in the form in which texts are compared: its letters and digits."""
    return " ".join(re.findall(r"[^\W_]+", _fold(text)))


def is_nearly_same(one: str, other: str) -> bool:
    """Whether two notes say nearly the same, or contradict each other."""
    one_stems, other_stems = stems(one), stems(other)
    both = len(one_stems & other_stems)
    return bool(both) and both / len(one_stems | other_stems) >= 0.8


def overlap(stems_of_one: frozenset[str], stems_of_other: frozenset[str]) -> float:
    """The share of the shorter note's stems that the other note has, 0 to 1."""
    least = min(len(stems_of_one), len(stems_of_other))
    return len(stems_of_one & stems_of_other) / least if least else 0.0


def stems(text: str) -> frozenset[str]:
    """The stems of the words of a note that carry meaning."""
    return frozenset({*map(_stem, _content_words(text)), *_literal_words(text)})


def _is_in_one_sentence(clause: str, message: str, old: Sequence[str]) -> bool:
    """Whether one sentence has all the words: picked from several, they could mean anything."""
    mine = [word for word in _all_words(clause) if not _is_among(word, old)]
    may_miss = len(mine) // _WORDS_PER_MISS
    return len(mine) <= may_miss + 1 or any(
        sum(not _is_among(word, theirs) for word in mine) <= may_miss
        for theirs in map(_all_words, _SENTENCE_END.split(_fold(message)))
    )


def _is_in_order(parts: Sequence[str], words: Sequence[str]) -> bool:
    """Whether `parts` occur among `words` in this order."""
    left = iter(words)
    return all(any(_is_among(word, (other,)) for other in left) for word in parts)


def _has_literals(text: str, message: str) -> bool:
    """Whether the message has everything in `text` that looks like a name or number, literally."""
    folded_text = _fold(message)
    chunks = {chunk.strip(_EDGE_MARKS) for chunk in folded_text.split()}
    return all(
        term in chunks or re.search(rf"(?<![\w.-]){re.escape(term)}(?![\w-])", folded_text)
        for term in _literal_words(text)
    )


def _literal_words(text: str) -> list[str]:
    chunks = (chunk.strip(_EDGE_MARKS) for chunk in _fold(text).split())
    return [chunk for chunk in chunks if chunk and _HARD_PATTERN.search(chunk)]


def _all_words(text: str) -> list[str]:
    return [*_content_words(text), *_literal_words(text)]


def _content_words(text: str) -> list[str]:
    """The words that carry meaning, in order, each once."""
    chunks = _fold(text).split()
    remaining = " ".join(
        c for c in chunks if not _HARD_PATTERN.search(c.strip(_EDGE_MARKS))
    )
    result: list[str] = []
    for word in _words(remaining):
        if word not in EMPTY_WORDS and not _is_denial(word) and word not in TURN_WORDS:
            result.append(word)
    return list(dict.fromkeys(result))


def _words(text: str) -> Iterable[str]:
    for word in _WORD_PATTERN.findall(text):
        # Compiled when needed: it takes longer than all the rest of a start.
        parts = [word] if word.isascii() else re.split(f"([{_DENSE_SCRIPTS}]+)", word)
        for n, part in enumerate(parts):
            if n % 2 and len(part) > 1:
                yield from (part[index : index + 2] for index in range(len(part) - 1))
            elif part:
                yield part


def _is_among(word: str, others: Sequence[str]) -> bool:
    return word in others or any(_differ_in_ending(word, other) for other in others)


def _differ_in_ending(one: str, other: str) -> bool:
    """Whether two words differ only in their ending."""
    short, long = sorted((one, other), key=len)
    if long == f"{short}s" or long == f"{short}es":
        return True
    same = next((n for n, c in enumerate(short) if c != long[n]), len(short))
    if same == len(short) >= 4:
        return len(long) - same <= 6
    return same >= 4 and same >= 0.6 * len(short) and len(long) - same <= max(4, same - 1)


def _stem(word: str) -> str:
    return word[:5] if len(word) > 5 else word.rstrip("s") or word


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")


def _has_same_sense(text: str, messages: Sequence[str]) -> bool:
    """Whether the message clause nearest to each clause of the note has the same sense."""
    theirs = [clause for words in messages for clause in _clauses(words)]
    return all(_keeps_sense(clause, theirs) for clause in _clauses(text))


def _keeps_sense(clause: str, others: Sequence[str]) -> bool:
    mine = _all_words(clause)
    scores = [
        sum(_is_among(word, words) for word in mine) for words in map(_all_words, others)
    ]
    best = max(scores, default=0)
    if not best:
        return True  # no common words: that is checked elsewhere
    nearest = [t for t, score in zip(others, scores, strict=True) if score == best]
    return any(
        _is_negative(clause) == _is_negative(t)
        or _has_turn_word(clause)
        or _has_turn_word(t)
        for t in nearest
    )


def _clauses(text: str) -> list[str]:
    # "pnpm not npm" says two things, "tabs are not wanted" one.
    apart = _NOT_PATTERN.sub(
        lambda m: m[0] if m[1] in EMPTY_WORDS else f"{m[1]}, not ", _fold(text)
    )
    return [clause for clause in _CLAUSE_END.split(apart) if clause.strip()]


def _is_negative(clause: str) -> bool:
    return any(map(_is_denial, _WORD_PATTERN.findall(clause))) or any(
        sign in clause for sign in DENYING_SIGNS
    )


def _is_denial(word: str) -> bool:
    return word in DENIAL_WORDS or word.endswith("n't")


def _has_turn_word(clause: str) -> bool:
    return any(word in TURN_WORDS for word in _WORD_PATTERN.findall(clause))
