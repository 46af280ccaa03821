"""What a request says of a change: what is replaced, by what, and which lines may go for it. Pure.

It reads one clause. `request_words` finds the clauses and the files that they are about, and makes
of each `Change` what has to hold of a file. Quoted texts stand in a clause as Q0Q, Q1Q …
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

FILE_WITHOUT_STEM = (
    r"\.(?:gitignore|gitattributes|dockerignore|editorconfig|env|npmrc|flake8)"
)
FILE_WITHOUT_ENDING = r"(?:Makefile|Dockerfile|Procfile)"
FILE = (
    r"(?<![\w@/.*:-])(?:\./)?(?:\w[\w.-]*(?:/[\w.-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}"
    rf"|(?:[\w-]+/)*(?:{FILE_WITHOUT_STEM}|{FILE_WITHOUT_ENDING}(?!\.\w)))(?![\w(/])"
)
_WORD = r"(Q\d+Q|[^\s,;]+)"
# Without quotes it is one word, and nothing else that could belong to it follows.
_NEW = (
    r"(Q\d+Q|[^\s,;]+(?=\s*$|[,;]|(?<=[.!?])\s|\s+(?:in|on|of|for|and|everywhere|within|throughout|"
    r"inside|at|then|instead|from|but)\b))"
)
_IN = rf"(?:\s+(?:in|of)\s+{FILE})?"
_VALUE = r"-?\d[\d.,:]*|true|false|on|off|yes|no|null|none"
_KINDS = (
    r"words?|names?|city|cities|strings?|texts?|terms?|years?|dates?|numbers?|functions?|variables?|"
    r"methods?|class(?:es)?|columns?|constants?|parameters?|arguments?|keys?|urls?|address(?:es)?"
)
_DOES = r"(?:replace|change|correct|fix|update|rename|swap)"
_SETS = r"(?:set|change|update|bump|increase|raise|lower|decrease|reduce|correct|fix|switch|turn)"
# In this order; the first that fits a part of a clause is what it says.
_FROM_TO = rf"(?i)(?:\b{_SETS}\s+(?:the\s+|its\s+)?([\w-]+){_IN}\s+)?\bfrom\s+{_WORD}\s+to\s+{_NEW}"
_SET_TO = rf"(?i)\b{_SETS}\s+(?:the\s+|its\s+)?(?:value\s+of\s+)?((?:[\w.-]+\s+){{0,2}}?(?:Q\d+Q|[\w.-]+)){_IN}\s+to\s+{_NEW}"
_KIND_TO = rf"(?i)\b{_DOES}\s+(?:the|all|every|each)?\s*(?:{_KINDS})\s+{_WORD}{_IN}\s+(?:in)?to\s+{_NEW}"
_TO = rf"(?i)\b{_DOES}\s+(?:(?:all|every|each)\s+)?{_WORD}\s+(?:in)?to\s+{_NEW}"
_WITH = rf"(?i)\b{_DOES}\b.*?{_WORD}{_IN}\s+(?:with|by)\s+{_NEW}"
_SHOULD_BE = (
    rf"(?i)(Q\d+Q|[\w-]+){_IN}\s+(?:should|must|has\s+to)\s+(?:be|read|say)\s+"
    rf"(Q\d+Q|(?:{_VALUE})(?=[\s.,;]|$))"
)
_FROM = (
    r"(?i)\b(?:delete|remove|erase)\s+(?!the\s+\S+\s+from)(?:the\s+)?(?:(?:line|entry|item|"
    rf"{_KINDS})\s+)?{_WORD}\s+from\b"
)
_LINES_WITH = (
    r"(?i)\blines?\s+(?:that\s+|which\s+)?(contain(?:s|ing)?|with|ha(?:s|ve)|(?:start|begin|end)"
    rf"(?:s|ing|ning)?\s+(?:with|in)|says?|saying)\s+(?:the\s+words?\s+)?{_WORD}"
)
_ONE_OF_SEVERAL = r"(?i)\b(?:first|second|third|last|one|only|line)\b"
_IN_A_PART = r"(?i)\b(?:section|block|table|under|entry|part)\b"
_NOT_LITERAL = frozenset(
    (
        "a",
        "an",
        "all",
        "any",
        "each",
        "every",
        "it",
        "its",
        "line",
        "lines",
        "one",
        "text",
        "that",
        "the",
        "them",
        "this",
        "value",
        "words",
    )
)


class Change(Struct, frozen=True):
    """`old` is replaced by `new`, or a setting `key` gets the value `new`.

    `everywhere`: `old` may not be left in any place. `loses` is a text of the lines that may go.
    """

    old: str = ""
    new: str = ""
    key: str = ""
    everywhere: bool = True
    loses: str = ""


def changes_in(text: str, quoted: Sequence[str]) -> Iterator[tuple[str, Change]]:
    """Each change that a clause asks for, with the part of the clause that says it."""
    verb = re.match(r"[A-Za-z]*", text)
    for n, part in enumerate(re.split(r",?\s+and\s+(?:also\s+)?|[,;]\s+", text)):
        said = part if n == 0 or verb is None else f"{verb[0]} {part}"
        found = _replaced(said, quoted)
        if found is not None:
            yield part, found


def stated_change(text: str, quoted: Sequence[str]) -> Change | None:
    """What a sentence without a verb for it says: "debug in a.ini should be false"."""
    found = re.search(_SHOULD_BE, text)
    if found is None or not _literal(found[1]):
        return None
    first, new = _word(found[1], quoted), _word(found[2], quoted)
    if found[1].startswith("Q"):
        return Change(first, new, everywhere=first not in new, loses=first)
    return Change(new=new, key=first, loses=first)


def deletions_in(text: str, quoted: Sequence[str]) -> Iterator[Change]:
    """The texts that are to go, each with the lines that go with it."""
    signs = re.findall(r"Q(\d+)Q", text)
    if found := re.search(_LINES_WITH, text):
        word = _word(found[2], quoted)
        whole = found[1].lower().startswith(("contain", "with", "ha", "say"))
        yield Change(word, everywhere=whole, loses=word)
    elif signs:
        yield from (Change(quoted[int(n)], loses=quoted[int(n)]) for n in signs)
    elif (found := re.search(_FROM, text)) and _literal(found[1]):
        word = _word(found[1], quoted)
        yield Change(word, loses=word)


def _replaced(text: str, quoted: Sequence[str]) -> Change | None:
    some = re.search(_ONE_OF_SEVERAL, text) is not None
    part = re.search(_IN_A_PART, text) is not None
    if found := re.search(_FROM_TO, text):
        key, old, new = (_word(each or "", quoted) for each in found.groups())
        return Change(old, new, "" if part else key, not (some or part), old)
    for pattern in (_KIND_TO, _TO, _WITH):
        if (found := re.search(pattern, text)) and not _sets(found[1], found[2]):
            old, new = _word(found[1], quoted), _word(found[2], quoted)
            if not _literal(found[1]):
                return Change(new=new)
            return Change(old, new, "", not some and old not in new, old)
    if found := re.search(_SET_TO, text):
        key, new = _word(found[1], quoted), _word(found[2], quoted)
        known = "" if part or " of " in key else key
        return Change("", new, known, loses=known)
    return None


def _sets(old: str, new: str) -> bool:
    """Is it "timeout to 60", which names a setting and its value, and no text to replace?"""
    value = re.fullmatch(rf"(?i){_VALUE}", new.rstrip(".,;!?")) is not None
    return value and re.fullmatch(r"[A-Za-z_][\w.-]*", old) is not None and old[0] != "Q"


def _literal(word: str) -> bool:
    """Is it a text of the file, and no word about it?"""
    word = word.rstrip(".,;!?")
    return word.lower() not in _NOT_LITERAL and re.fullmatch(FILE, word) is None


def _word(word: str, quoted: Sequence[str]) -> str:
    word = word.rstrip(".,;!?")
    found = re.fullmatch(r"Q(\d+)Q", word)
    return quoted[int(found[1])] if found else word
