"""Answers a question from what is known, in one model call, and shows only claims whose evidence is there now.

`choose_facts` takes the statements that share the most words with the question, and lines of the repository map about the
symbols that it names. The model's claims name the facts that they follow from. Code reads each place again before
a claim is shown.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log

from msgspec import Struct

from refold.claims.passages import LineRange, normalize_quote, passage
from refold.code.repomap.repository_map import Place, RepositoryMap
from refold.code.repomap.uses import Use
from refold.rlm.leaves import LeafFailed, ModelQuestion
from refold.understanding.leaf_questions import answering_question
from refold.understanding.statements import (
    NAME_MISSING,
    NOT_STATED,
    items_of,
    one_sentence,
    source_numbers,
    sum_up,
    unknown_names,
    words_of,
)
from refold.understanding.survey import KnownStatement
from refold.values.claims import Evidence

_MAX_STATEMENTS = 40  # that one question lists
_MAX_SYMBOLS = 6  # of a question that are looked up
_MAX_PLACES = 20  # of one symbol
_MAX_EVIDENCE = 4  # that is shown of one claim
_IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_][\w.]*\w")
_CODE_NAME_PATTERN = re.compile(r"[_.\d]|.[A-Z]")
_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_COMMON_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has",
    "have", "how", "if", "in", "is", "it", "its", "of", "on", "or", "that", "the", "there",
    "this", "to", "was", "what", "when", "where", "which", "who", "why", "will", "with",
))  # fmt: skip
NUMBER_MISSING = "that follow from no fact"
PLACE_MISSING = "whose place has changed"


class Fact(Struct, frozen=True):
    """A line that the model reads, and the places that show it. An exact one is a line of a file."""

    text: str
    evidence: tuple[Evidence, ...]
    is_exact: bool = False


class ShownClaim(Struct, frozen=True):
    claim: str
    evidence: tuple[Evidence, ...]


class CheckedClaims(Struct, frozen=True):
    """The claims that hold, and how many were dropped for which reason."""

    claims: tuple[ShownClaim, ...]
    dropped: Mapping[str, int]


def choose_facts(
    question: str, statements: Sequence[KnownStatement], repository: RepositoryMap
) -> Sequence[Fact]:
    """The facts for a question. `statements` are fresh."""
    known = [
        Fact(f"{item.about}: {item.text}", item.evidence)
        for item in _best(question, statements)
    ]
    return [*_structure(question, repository), *known]


def to_question(question: str, facts: Sequence[Fact]) -> ModelQuestion:
    return answering_question(question, [fact.text for fact in facts])


def check_claims(
    answer: str | LeafFailed, facts: Sequence[Fact], read_text: Callable[[str], str | None]
) -> CheckedClaims:
    """The claims of an answer whose evidence is in the files now, which `read_text` gives.

    Raises `ValueError` if it is not an answer.
    """
    if isinstance(answer, LeafFailed):
        raise ValueError(str(answer))
    claims, dropped = list[ShownClaim](), Counter[str]()
    for item in items_of(answer, "claims"):
        result = _check(item, facts, read_text)
        if isinstance(result, str):
            dropped[result] += 1
        elif result not in claims:
            claims.append(result)
    return CheckedClaims(tuple(claims), sum_up([dropped]))


def _check(
    item: Mapping[str, object],
    facts: Sequence[Fact],
    read_text: Callable[[str], str | None],
) -> ShownClaim | str:
    claim = one_sentence(item.get("claim"))
    if not claim:
        return NOT_STATED
    numbers = source_numbers(item, len(facts))
    if not numbers:
        return NUMBER_MISSING
    shown = [facts[number - 1] for number in numbers]
    if unknown_names(claim, words_of(*(_whole_text(fact) for fact in shown))):
        return NAME_MISSING
    evidence = [item for fact in shown for item in fact.evidence]
    if not evidence or not all(is_present(item, read_text) for item in evidence):
        return PLACE_MISSING
    return ShownClaim(claim, tuple(dict.fromkeys(evidence))[:_MAX_EVIDENCE])


def is_present(evidence: Evidence, read_text: Callable[[str], str | None]) -> bool:
    """Whether the file now has the quote on these lines."""
    text = read_text(evidence.path)
    first, _, last = evidence.lines.partition("-")
    if text is None or not first.isdecimal():
        return False
    within = LineRange(int(first), int(last or first))
    return bool(passage(text).places(normalize_quote(evidence.quote), within, limit=1))


def _whole_text(fact: Fact) -> str:
    return " ".join((fact.text, *(f"{item.path} {item.quote}" for item in fact.evidence)))


def _structure(question: str, repository: RepositoryMap) -> Sequence[Fact]:
    """Where the symbols of the question are defined and used.

    Words of prose ("call", "file") are symbols somewhere, too: they count only if no name like `read_all`, `readAll` or
    `a.read` leads to a fact.
    """
    names = dict.fromkeys(_IDENTIFIER_PATTERN.findall(question))
    symbols = [name for name in names if name.casefold() not in _COMMON_WORDS]
    like_code = [name for name in symbols if _CODE_NAME_PATTERN.search(name)]
    return _facts_about(like_code, repository) or _facts_about(symbols, repository)


def _facts_about(symbols: Sequence[str], repository: RepositoryMap) -> Sequence[Fact]:
    facts = list[Fact]()
    for name in symbols[: 5 * _MAX_SYMBOLS]:
        report = repository.describe_symbol(name)
        if not report.definitions:
            continue
        facts += [_definition_fact(place) for place in report.definitions[:_MAX_PLACES]]
        for uses, word in ((report.uses, "uses"), (report.tests, "tests")):
            facts += [_use_fact(use, name, word) for use in uses[:_MAX_PLACES]]
        if len(facts) >= _MAX_SYMBOLS * _MAX_PLACES:
            break
    return [fact for fact in facts if fact.evidence[0].quote.strip()]


def _definition_fact(place: Place) -> Fact:
    item = place.definition
    word = "declares" if item.kind == "declaration" else "defines"
    return _line_fact(f"{word} {item.full_name}", place.path, item.line, place.text)


def _use_fact(use: Use, name: str, word: str) -> Fact:
    caller = f"{use.caller} " if use.caller else ""
    return _line_fact(f"{caller}{word} {name}", use.path, use.line, use.text)


def _line_fact(role: str, path: str, line: int, text: str) -> Fact:
    text = text.strip()
    return Fact(f"{path}:{line} {role}: {text}", (Evidence(path, str(line), text),), True)


def _best(question: str, statements: Sequence[KnownStatement]) -> Sequence[KnownStatement]:
    """The statements that share the most of the rare words of the question; about directories first, if none."""
    wanted = set(_words(question)) - _COMMON_WORDS
    bags = [set(_words(_text_to_search(item))) for item in statements]
    counts = Counter(word for bag in bags for word in bag & wanted)
    scores = [
        sum(log(1 + len(bags) / counts[word]) for word in bag & wanted) for bag in bags
    ]
    order = sorted(
        range(len(statements)),
        key=lambda n: (-scores[n], not statements[n].about.endswith("/"), n),
    )
    return [statements[n] for n in order[:_MAX_STATEMENTS]]


def _text_to_search(item: KnownStatement) -> str:
    return " ".join(
        (item.about, item.text, *(evidence.quote for evidence in item.evidence))
    )


def _words(text: str) -> Iterable[str]:
    for word in _WORD_PATTERN.findall(text):
        folded = word.casefold()
        yield folded[:-1] if len(folded) > 3 and folded.endswith("s") else folded
