"""What a request says of a change: what is replaced, by what, and which lines may go for it. Pure.

It reads one clause. `request_words` finds the clauses and the files that they are about, and makes
of each `StatedChange` what has to hold of a file. Quoted texts stand in a clause as Q0Q, Q1Q …
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

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
_THE = r"(?:the\s+|its\s+)?(?:value\s+of\s+)?"
# In this order; the first that fits a part of a clause is what it says.
_FROM_TO = rf"(?i)(?:\b{_SETS}\s+{_THE}([\w-]+){_IN}\s+)?\bfrom\s+{_WORD}\s+to\s+{_NEW}"
_KIND_TO = rf"(?i)\b{_DOES}\s+(?:the|all|every|each)?\s*(?:{_KINDS})\s+{_WORD}{_IN}\s+(?:in)?to\s+{_NEW}"
_TO = rf"(?i)\b{_DOES}\s+(?:(?:all|every|each)\s+)?{_WORD}\s+(?:in)?to\s+{_NEW}"
_WITH = rf"(?i)\b{_DOES}\b.*?{_WORD}{_IN}\s+(?:with|by)\s+{_NEW}"
_SWAP = rf"(?i)\bswap\s+{_WORD}\s+for\s+{_NEW}"
_QUOTES = r"(Q\d+Q)\s+(?:in)?to\s+(Q\d+Q)"
_SET_TO = rf"(?i)\b{_SETS}\s+{_THE}((?:[\w.-]+\s+){{0,2}}?(?:Q\d+Q|[\w.-]+)){_IN}(?:\s+to\s+|\s*=\s*){_NEW}"
_SO_THAT = rf"(?i)\bso\s+that\s+{_THE}(Q\d+Q|[\w-]+)\s+is\s+{_NEW}"
_OF_SOMEONE = rf"(?i)\b{_SETS}\s+(\w+)['’]s\s+[\w-]+{_IN}\s+to\s+{_NEW}"
_SHOULD_BE = (
    rf"(?i)(Q\d+Q|[\w-]+){_IN}\s+(?:should|must|has\s+to)\s+(?:be|read|say)\s+"
    rf"(Q\d+Q|(?:{_VALUE})(?=[\s.,;]|$))"
)
_INSTEAD = rf"(?i)\buse\s+{_WORD}\s+(?:instead\s+of|rather\s+than)\s+{_NEW}"
_FROM = (
    r"(?i)\b(?:delete|remove|erase)\s+(?!the\s+\S+\s+from)(?:the\s+)?(?:(line|entry|item|"
    rf"{_KINDS})\s+)?{_WORD}\s+from\b"
)
_LINES_WITH = (
    r"(?i)\blines?\s+(?:that\s+|which\s+)?(contain(?:s|ing)?|with|ha(?:s|ve)|(?:start|begin|end)"
    rf"(?:s|ing|ning)?\s+(?:with|in)|says?|saying)\s+(?:the\s+words?\s+)?{_WORD}"
)
_ONE_OF_SEVERAL = r"(?i)\b(?:first|second|third|fourth|fifth|last|one|only|line)\b"
_IN_A_PART = r"(?i)\b(?:section|block|table|under|entry|part)\b"
_ABOUT_A_KEY = r"(?i)\s+(?:number|setting|option|value|key|field|property|variable)$"
_NOT_LITERAL = frozenset(
    (
        "a",
        "an",
        "all",
        "any",
        "both",
        "each",
        "every",
        "everything",
        "something",
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


class StatedChange(Struct, frozen=True):
    """`old` is replaced by `new`, or a setting `key` gets the value `new`.

    With both, it is the value of the setting where there is one, else the text. `everywhere`:
    `old` may not be left in any place. `lines`: so are whole lines, which are `old` or have it.
    `loses` is a text of the lines that may go.
    """

    old: str = ""
    new: str = ""
    key: str = ""
    everywhere: bool = True
    lines: Literal["", "are", "have"] = ""
    loses: str = ""


def changes_in(text: str, quoted: Sequence[str]) -> Iterator[tuple[str, StatedChange]]:
    """Each change that a clause asks for, with the part of the clause that says it."""
    verb = re.match(r"[A-Za-z]*", text)
    for n, part in enumerate(re.split(r",?\s+and\s+(?:also\s+)?|[,;]\s+", text)):
        said = part if n == 0 or verb is None else f"{verb[0]} {part}"
        found = _set(said, quoted) or _replaced(said, quoted) or _given(said, quoted)
        if found is not None:
            yield part, found


def stated_change(text: str, quoted: Sequence[str]) -> StatedChange | None:
    """What a sentence without a verb for it says: "debug in a.ini should be false"."""
    if found := re.search(_INSTEAD, text):
        new, old = _word(found[1], quoted), _word(found[2], quoted)
        return StatedChange(old, new, everywhere=old not in new, loses=old)
    found = re.search(_SHOULD_BE, text)
    if found is None or not is_literal(found[1]):
        return None
    first, new = _word(found[1], quoted), _word(found[2], quoted)
    if found[1].startswith("Q"):
        return StatedChange(first, new, everywhere=first not in new, loses=first)
    return StatedChange(new=new, key=first, loses=first)


def deletions_in(text: str, quoted: Sequence[str]) -> Iterator[StatedChange]:
    """The texts that are to go, each with the lines that go with it."""
    signs = re.findall(r"Q(\d+)Q", text)
    if found := re.search(_LINES_WITH, text):
        word, how = _word(found[2], quoted), found[1].lower()
        if how.startswith(("contain", "with", "ha")):
            yield StatedChange(word, lines="have", loses=word)
        else:
            says = how.startswith("say")
            yield StatedChange(
                word, everywhere=says, lines="are" if says else "", loses=word
            )
    elif signs:
        line = re.search(r"(?i)\blines?\b[^Q]{0,30}Q\d", text) is not None
        for word in (quoted[int(n)] for n in signs):
            yield StatedChange(word, lines="are" if line else "", loses=word)
    elif (found := re.search(_FROM, text)) and is_literal(found[2]):
        word = _word(found[2], quoted)
        line = (found[1] or "").lower() == "line"
        yield StatedChange(word, lines="are" if line else "", loses=word)


def _set(text: str, quoted: Sequence[str]) -> StatedChange | None:
    """ "timeout to 60": a setting and its value; and who has what."""
    if found := re.search(_TO, text):
        old, new = _word(found[1], quoted), _word(found[2], quoted)
        value = re.fullmatch(rf"(?i){_VALUE}", new) is not None
        if value and re.fullmatch(r"[A-Za-z_][\w.-]*", old):
            return StatedChange(old if found[1][0] == "Q" else "", new, old, loses=old)
    if found := re.search(_OF_SOMEONE, text):
        return StatedChange(new=_word(found[2], quoted), loses=found[1])
    return None


def _replaced(text: str, quoted: Sequence[str]) -> StatedChange | None:
    if re.match(r"(?i)set\b", text):
        return None
    some = re.search(_ONE_OF_SEVERAL, text) is not None
    if found := re.search(_FROM_TO, text):
        part = re.search(_IN_A_PART, text) is not None
        key, old, new = (_word(each or "", quoted) for each in found.groups())
        return StatedChange(old, new, "" if part else key, not (some or part), loses=old)
    for pattern in (_KIND_TO, _TO, _WITH, _SWAP, _QUOTES):
        if found := re.search(pattern, text):
            old, new = _word(found[1], quoted), _word(found[2], quoted)
            if not is_literal(found[1]):
                return StatedChange(new=new)
            return StatedChange(old, new, "", not some and old not in new, loses=old)
    return None


def _given(text: str, quoted: Sequence[str]) -> StatedChange | None:
    found = re.search(_SET_TO, text) or re.search(_SO_THAT, text)
    if found is None:
        return None
    key, new = re.sub(_ABOUT_A_KEY, "", _word(found[1], quoted)), _word(found[2], quoted)
    if not is_literal(key) or re.search(r"(?i)\blines?\b", key):
        return StatedChange(new=new)
    if " of " in key:
        return StatedChange(new=new, loses=key.rpartition(" ")[2])
    known = "" if re.search(_IN_A_PART, text) else key
    return StatedChange(new=new, key=known, loses=known)


def _bare(word: str) -> str:
    return word.rstrip(".,;!?")


def is_literal(word: str) -> bool:
    """Is it a text of the file, and no word about it?"""
    word = _bare(word)
    about = word in _NOT_LITERAL or word.lower() in _NOT_LITERAL - {"a"}
    return not about and re.fullmatch(FILE, word) is None


def _word(word: str, quoted: Sequence[str]) -> str:
    word = _bare(word)
    found = re.fullmatch(r"Q(\d+)Q", word)
    return quoted[int(found[1])] if found else word
