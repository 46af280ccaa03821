"""Answers a question from known statements, in one model call, and checks the evidence.

`choose_facts` selects the statements that share the most words with the question, and lines of
the repository map about the symbols that it names. The model's claims name the facts from which
they follow. Code reads each place again before a claim is shown.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log

from msgspec import Struct

from refold.claims.passages import LineRange, normalize_quote, passage
from refold.code.repomap.repository_map import Place, RepositoryMap
from refold.code.repomap.uses import Use
from refold.rlm.leaf_calls import LeafFailed, ModelQuestion
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

_MAX_STATEMENTS = 40  # listed for one question
_MAX_SYMBOLS = 6  # of a question that are looked up
_MAX_PLACES = 20  # of one symbol
_MAX_EVIDENCE = 4  # shown for one claim
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
    """A line that the model reads, and the places that support it.

    `is_exact` says that the line quotes a file.
    """

    text: str
    evidence: tuple[Evidence, ...]
    is_exact: bool = False


class ShownClaim(Struct, frozen=True):
    claim: str
    evidence: tuple[Evidence, ...]


class CheckedClaims(Struct, frozen=True):
    """The valid claims, and the number of dropped claims by the reason."""

    claims: tuple[ShownClaim, ...]
    dropped: Mapping[str, int]


def choose_facts(
    question: str, statements: Sequence[KnownStatement], repository: RepositoryMap
) -> Sequence[Fact]:
    """Return the facts that may answer a question. All `statements` must be fresh."""
    statement_facts = [
        Fact(f"{item.about}: {item.text}", item.evidence)
        for item in _best_statements(question, statements)
    ]
    return [*_symbol_facts(question, repository), *statement_facts]


def to_question(question: str, facts: Sequence[Fact]) -> ModelQuestion:
    return answering_question(question, [fact.text for fact in facts])


def check_claims(
    answer: str | LeafFailed, facts: Sequence[Fact], read_text: Callable[[str], str | None]
) -> CheckedClaims:
    """Return the valid claims of an answer, and the reasons why others were dropped.

    A claim is valid if its evidence is in the current texts of the files, which `read_text`
    returns (None for a missing file). Raises `ValueError` if the model call failed, or if the
    answer has no list.
    """
    if isinstance(answer, LeafFailed):
        raise ValueError(str(answer))
    claims, dropped = list[ShownClaim](), Counter[str]()
    for item in items_of(answer, "claims"):
        result = _check_claim(item, facts, read_text)
        if isinstance(result, str):
            dropped[result] += 1
        elif result not in claims:
            claims.append(result)
    return CheckedClaims(tuple(claims), sum_up([dropped]))


def _check_claim(
    item: Mapping[str, object],
    facts: Sequence[Fact],
    read_text: Callable[[str], str | None],
) -> ShownClaim | str:
    """Return the claim in `item` with its evidence, or the reason to drop it, as a text."""
    claim = one_sentence(item.get("claim"))
    if not claim:
        return NOT_STATED
    numbers = source_numbers(item, len(facts))
    if not numbers:
        return NUMBER_MISSING
    named_facts = [facts[number - 1] for number in numbers]
    words = words_of(*(_whole_text(fact) for fact in named_facts))
    if unknown_names(claim, words):
        return NAME_MISSING
    evidence = [part for fact in named_facts for part in fact.evidence]
    if not evidence or not all(is_present(part, read_text) for part in evidence):
        return PLACE_MISSING
    return ShownClaim(claim, tuple(dict.fromkeys(evidence))[:_MAX_EVIDENCE])


def is_present(evidence: Evidence, read_text: Callable[[str], str | None]) -> bool:
    """Whether the current file has the quote of the evidence on the lines of the evidence."""
    text = read_text(evidence.path)
    first, _, last = evidence.lines.partition("-")
    if text is None or not first.isdecimal():
        return False
    within = LineRange(int(first), int(last or first))
    places = passage(text).places(normalize_quote(evidence.quote), within, limit=1)
    return bool(places)


def _whole_text(fact: Fact) -> str:
    """Return all text of a fact in which the names of a claim are looked up."""
    return " ".join((fact.text, *(f"{item.path} {item.quote}" for item in fact.evidence)))


def _symbol_facts(question: str, repository: RepositoryMap) -> Sequence[Fact]:
    """Return facts about where the symbols in a question are defined and used.

    A plain word like "call" may be the name of a symbol, too. Plain words count only if there
    is no fact about a name that looks like code (`read_all`, `readAll`, `a.read`).
    """
    names = dict.fromkeys(_IDENTIFIER_PATTERN.findall(question))
    symbols = [name for name in names if name.casefold() not in _COMMON_WORDS]
    like_code = [name for name in symbols if _CODE_NAME_PATTERN.search(name)]
    return _facts_about(like_code, repository) or _facts_about(symbols, repository)


def _facts_about(symbols: Sequence[str], repository: RepositoryMap) -> Sequence[Fact]:
    """Return facts about the definitions and uses of these symbols."""
    facts = list[Fact]()
    for name in symbols[: 5 * _MAX_SYMBOLS]:  # most words are not symbols
        report = repository.describe_symbol(name)
        if not report.definitions:
            continue
        facts += [_definition_fact(place) for place in report.definitions[:_MAX_PLACES]]
        facts += [_use_fact(use, name, "uses") for use in report.uses[:_MAX_PLACES]]
        facts += [_use_fact(use, name, "tests") for use in report.tests[:_MAX_PLACES]]
        if len(facts) >= _MAX_SYMBOLS * _MAX_PLACES:
            break
    # An empty line shows nothing: the file has changed since the map read it.
    return [fact for fact in facts if any(item.quote.strip() for item in fact.evidence)]


def _definition_fact(place: Place) -> Fact:
    item = place.definition
    word = "declares" if item.kind == "declaration" else "defines"
    return _line_fact(f"{word} {item.full_name}", place.path, item.line, place.text)


def _use_fact(use: Use, name: str, word: str) -> Fact:
    caller = f"{use.caller} " if use.caller else ""
    return _line_fact(f"{caller}{word} {name}", use.path, use.line, use.text)


def _line_fact(role: str, path: str, line: int, text: str) -> Fact:
    """Return the fact that a line of a file has a role, such as "defines read_all"."""
    text = text.strip()
    evidence = (Evidence(path, str(line), text),)
    return Fact(f"{path}:{line} {role}: {text}", evidence, is_exact=True)


def _best_statements(
    question: str, statements: Sequence[KnownStatement]
) -> Sequence[KnownStatement]:
    """Return the statements that share the most words with the question. Rare words count more.

    Of statements with equal scores, those about directories come first.
    """
    question_words = set(_words(question)) - _COMMON_WORDS
    shared_words = [
        question_words.intersection(_words(_text_to_search(item))) for item in statements
    ]
    counts = Counter(word for words in shared_words for word in words)
    scores = [
        sum(log(1 + len(statements) / counts[word]) for word in words)
        for words in shared_words
    ]

    def rank(index: int) -> tuple[float, bool, int]:
        is_about_directory = statements[index].about.endswith("/")
        return -scores[index], not is_about_directory, index

    ranked = sorted(range(len(statements)), key=rank)
    return [statements[index] for index in ranked[:_MAX_STATEMENTS]]


def _text_to_search(item: KnownStatement) -> str:
    return " ".join(
        (item.about, item.text, *(evidence.quote for evidence in item.evidence))
    )


def _words(text: str) -> Iterable[str]:
    """Yield the words in a text and in its names, in lower case and without a plural s."""
    for word in _WORD_PATTERN.findall(text):
        folded = word.casefold()
        yield folded[:-1] if len(folded) > 3 and folded.endswith("s") else folded
