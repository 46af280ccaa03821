"""Decides whether a note follows from the user's messages, by comparing words. Pure.

A file or a page may have misled the model that wrote the note. So a note is saved only if its
words are in the user's messages: words that look like a name, a number, a path or an address
must be there literally, nearly all others in any inflection. A "not" must be neither lost nor
added. Words like "the" are ignored in the languages whose words are known.
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

# The end of a sentence, a comma, a colon, or a "but" in some languages.
_CLAUSE_END = re.compile(
    r"[.!?](?=\s|$)|[;,\n。！？、，：；]|:(?=\s)"
    r"|\s(?:but|sondern|aber|mais|sino|pero|ma|mas|maar|но)\s"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[;\n。！？；]")
_NOT_PATTERN = re.compile(r"([^\W_]+)\snot\s(?=\w)")  # a "not" between two words
_EDGE_MARKS = "\"'`«»„“”‘’()[]{}<>.,;:!?…*_"
# A digit, a sign of a path, an option, an address or code.
_LITERAL_PATTERN = re.compile(r"[\d/\\@=$~%#<>|_+^&]|^-|[^\W_][.:][^\W_]|[({\[]")
# Scripts without blanks: pairs of letters stand for words.
_DENSE_SCRIPTS = (
    "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
)
_WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_MIN_OVERLAP = 0.75  # of the words of a prohibition that its replacement must have
_WORDS_PER_MISS = 6  # one word in this number need not be the user's
_NEARLY_SAME_SHARE = 0.8  # of the words of both notes
# Of two words that differ only in their ending, such as "prefer" and "preferred".
_MIN_SAME_LETTERS = 4
_MIN_SAME_SHARE = 0.6  # of the shorter word
_MAX_ADDED_LETTERS = 6  # if the longer word begins with the shorter one
_MAX_ENDING_LETTERS = 4  # otherwise; the ending of a long word may be longer


def is_grounded(text: str, words: Sequence[str], source: str = "") -> bool:
    """Whether the note `text` follows from the messages `words` of the user.

    `source` is the existing note that `text` replaces, or "". Words of `source` may be used
    again; all new words must be in the messages.
    """
    messages_text = "\n".join(words)
    if not _has_literals(text, f"{messages_text}\n{source}"):
        return False
    note_words = _all_words(text)
    user_words = _all_words(messages_text)
    source_words = _all_words(source)
    if not note_words:
        return False
    new_words = [word for word in note_words if not _is_among(word, source_words)]
    if not new_words:
        new_words = note_words  # then the user must have used all words of the note
    missing = [word for word in new_words if not _is_among(word, user_words)]
    max_missing = 0 if source else len(note_words) // _WORDS_PER_MISS
    if len(missing) > max_missing:
        return False
    for clause in _clauses(text):
        if not _is_in_one_sentence(clause, messages_text, source_words):
            return False
    texts_to_compare = [*words, source] if source else words
    return _has_same_sense(text, texts_to_compare)


def may_replace(old: str, new: str) -> bool:
    """Whether the note `new` may replace the note `old`.

    If `old` is a prohibition, `new` must have most of its words. Otherwise a misled model could
    replace a "never" with something harmless.
    """
    if not forbids(old):
        return True
    old_stems = frozenset(map(_stem, _content_words(old)))
    new_stems = frozenset(map(_stem, _content_words(new)))
    if not old_stems:
        return False
    return len(old_stems & new_stems) / len(old_stems) >= _MIN_OVERLAP


def lifts_prohibition(old: str, new: str) -> bool:
    """Whether the note `new` would replace the prohibition `old`, and no longer forbid
    anything.
    """
    return forbids(old) and not forbids(new) and may_replace(old, new)


def is_stated_in_order(text: str, words: Sequence[str]) -> bool:
    """Whether one clause of the messages `words` has all words of the note, in their order.

    A note that lifts a prohibition must pass this check. It is not enough that all its words
    are somewhere in the messages.
    """
    note_words = _all_words(text)
    clauses = [clause for message in words for clause in _clauses(message)]
    return any(_is_in_order(note_words, _all_words(clause)) for clause in clauses)


def forbids(note: str) -> bool:
    """Whether the note contains a word such as "not" or "never"."""
    return any(map(_is_negative, _clauses(note)))


def normalize(text: str) -> str:
    """Return the words of `text` for comparison: only letters and digits, in lower case."""
    return " ".join(re.findall(r"[^\W_]+", _fold(text)))


def is_nearly_same(one: str, other: str) -> bool:
    """Whether two notes have nearly the same words, apart from words such as "the" and "not".

    So a note and its opposite count as nearly the same, too.
    """
    one_stems, other_stems = stems(one), stems(other)
    common_count = len(one_stems & other_stems)
    if not common_count:
        return False
    return common_count / len(one_stems | other_stems) >= _NEARLY_SAME_SHARE


def overlap(stems_of_one: frozenset[str], stems_of_other: frozenset[str]) -> float:
    """Return how much of the shorter set of stems is also in the other set: 0 to 1."""
    shorter_count = min(len(stems_of_one), len(stems_of_other))
    if not shorter_count:
        return 0.0
    return len(stems_of_one & stems_of_other) / shorter_count


def stems(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning, and the literal words such as paths."""
    return frozenset({*map(_stem, _content_words(text)), *_literal_words(text)})


def _is_in_one_sentence(clause: str, message: str, old_words: Sequence[str]) -> bool:
    """Whether one sentence of `message` has nearly all new words of the clause.

    The words of the replaced note, `old_words`, are not new. A new note must not be made of
    words from several sentences, because these could mean anything together.
    """
    new_words = [word for word in _all_words(clause) if not _is_among(word, old_words)]
    max_missing = len(new_words) // _WORDS_PER_MISS
    if len(new_words) <= max_missing + 1:
        return True  # a single word is always in one sentence
    for sentence in _SENTENCE_END.split(_fold(message)):
        sentence_words = _all_words(sentence)
        missing = [word for word in new_words if not _is_among(word, sentence_words)]
        if len(missing) <= max_missing:
            return True
    return False


def _is_in_order(parts: Sequence[str], words: Sequence[str]) -> bool:
    """Whether `parts` occur among `words` in this order."""
    remaining = iter(words)  # each search continues after the last match
    for part in parts:
        is_found = any(_is_among(part, (word,)) for word in remaining)
        if not is_found:
            return False
    return True


def _has_literals(text: str, message: str) -> bool:
    """Whether each path, number, address or piece of code in `text` is also in `message`."""
    folded_message = _fold(message)
    chunks = {chunk.strip(_EDGE_MARKS) for chunk in folded_message.split()}
    for literal in _literal_words(text):
        if literal in chunks:
            continue
        as_whole_word = rf"(?<![\w.-]){re.escape(literal)}(?![\w-])"
        if not re.search(as_whole_word, folded_message):
            return False
    return True


def _literal_words(text: str) -> list[str]:
    """Return the words that look like a path, a number, an address or code."""
    chunks = (chunk.strip(_EDGE_MARKS) for chunk in _fold(text).split())
    return [chunk for chunk in chunks if chunk and _LITERAL_PATTERN.search(chunk)]


def _all_words(text: str) -> list[str]:
    """Return the words that carry meaning, then the literal words."""
    return [*_content_words(text), *_literal_words(text)]


def _content_words(text: str) -> list[str]:
    """Return the words that carry meaning, in order and without repetition.

    Literal words are not among them.
    """
    prose = [
        chunk
        for chunk in _fold(text).split()
        if not _LITERAL_PATTERN.search(chunk.strip(_EDGE_MARKS))
    ]
    content_words = dict[str, None]()  # a dict keeps the order
    for word in _words(" ".join(prose)):
        if word not in EMPTY_WORDS and not _is_denial(word) and word not in TURN_WORDS:
            content_words[word] = None
    return list(content_words)


def _words(text: str) -> Iterable[str]:
    """Yield the words of a text.

    In scripts that are written without blanks, each pair of neighbouring letters is a word.
    """
    for word in _WORD_PATTERN.findall(text):
        # Compiled when needed, because compiling takes longer than the rest of a start.
        parts = [word] if word.isascii() else re.split(f"([{_DENSE_SCRIPTS}]+)", word)
        for n, part in enumerate(parts):
            is_dense = n % 2 == 1  # `re.split` puts what the group matches at odd places
            if is_dense and len(part) > 1:
                for index in range(len(part) - 1):
                    yield part[index : index + 2]
            elif part:
                yield part


def _is_among(word: str, others: Sequence[str]) -> bool:
    """Whether the word, or a word that differs only in its ending, is one of `others`."""
    return word in others or any(_differ_in_ending(word, other) for other in others)


def _differ_in_ending(one: str, other: str) -> bool:
    """Whether two words probably differ only in their ending.

    It is a guess by lengths: there is no dictionary.
    """
    short, long = sorted((one, other), key=len)
    if long in (f"{short}s", f"{short}es"):
        return True
    same = 0  # the number of common letters at the beginning
    while same < len(short) and short[same] == long[same]:
        same += 1
    if same < _MIN_SAME_LETTERS:
        return False
    long_ending_chars = len(long) - same
    if same == len(short):  # the longer word begins with the shorter one
        return long_ending_chars <= _MAX_ADDED_LETTERS
    has_same_stem = same >= _MIN_SAME_SHARE * len(short)
    return has_same_stem and long_ending_chars <= max(_MAX_ENDING_LETTERS, same - 1)


def _stem(word: str) -> str:
    """Return an approximate stem: the first five letters, or a short word without its "s"."""
    return word[:5] if len(word) > 5 else word.rstrip("s") or word


def _fold(text: str) -> str:
    """Return the text in lower case and in one Unicode form."""
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")


def _has_same_sense(text: str, messages: Sequence[str]) -> bool:
    """Whether each clause of the note says "not" exactly if the messages say it.

    Each clause is compared with the clauses of the messages that are most similar to it.
    """
    message_clauses = [clause for message in messages for clause in _clauses(message)]
    return all(_keeps_sense(clause, message_clauses) for clause in _clauses(text))


def _keeps_sense(clause: str, others: Sequence[str]) -> bool:
    """Whether a clause says "not" exactly if one of the most similar clauses of `others` does.

    The most similar clauses have the most words in common with it. If a compared clause has a
    word such as "instead", or if no words are in common, the result is True.
    """
    words = _all_words(clause)
    common_counts = list[int]()
    for other in others:
        other_words = _all_words(other)
        common_counts.append(sum(_is_among(word, other_words) for word in words))
    most_common = max(common_counts, default=0)
    if not most_common:
        return True  # no common words: `is_grounded` checks that
    if _has_turn_word(clause):
        return True
    is_negative = _is_negative(clause)
    for other, count in zip(others, common_counts, strict=True):
        if count != most_common:
            continue
        if _is_negative(other) == is_negative or _has_turn_word(other):
            return True
    return False


def _clauses(text: str) -> list[str]:
    """Return the clauses of the text, in lower case. "A not B" makes two clauses."""

    def separate_not(match: re.Match[str]) -> str:
        """Return the match, with a comma before "not" if "not" begins another clause."""
        # "pnpm not npm" makes two statements, "tabs are not wanted" makes one.
        return match[0] if match[1] in EMPTY_WORDS else f"{match[1]}, not "

    separated = _NOT_PATTERN.sub(separate_not, _fold(text))
    return [clause for clause in _CLAUSE_END.split(separated) if clause.strip()]


def _is_negative(clause: str) -> bool:
    """Whether a clause has a word such as "not", or a sign that stands for one."""
    if any(_is_denial(word) for word in _WORD_PATTERN.findall(clause)):
        return True
    return any(sign in clause for sign in DENYING_SIGNS)


def _is_denial(word: str) -> bool:
    return word in DENIAL_WORDS or word.endswith("n't")


def _has_turn_word(clause: str) -> bool:
    return any(word in TURN_WORDS for word in _WORD_PATTERN.findall(clause))
