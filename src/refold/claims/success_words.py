"""Does a claim say that something passes? The one thing about its meaning that is looked at.

An exit code tells failure whatever the quote. Where the words may be meant either way, that
is said, and the check draws no conclusion from them.
"""

import re
from typing import Literal, TypeAlias

Says: TypeAlias = Literal["passes", "fails", "unclear", ""]

_LONGEST = 2_000  # characters that are looked at
_A_FEW = r"(?:\w+ ){0,3}"
_BETWEEN = r"(?:(?!(?:no|not|zero|without|none|nothing|never|nor) )[^\W\d]\w* ){0,3}"
_FAILS = r"(?:fail(?:s|ed|ing|ures?)?|errors?|errored|broken|breaks|red)"
_PASSES = (
    r"(?:pass(?:es|ed|ing)?(?! (?:to|as|in|by|through|on|into|from|along|via|it|itself)\b)"
    r"|succeed(?:s|ed|ing)?|success(?:ful|fully)?|green|exit(?:s|ed)?(?: (?:code|status|with))* 0)"
)
_PLAINLY_FAILS = re.compile(rf"\b[1-9]\d* {_BETWEEN}{_FAILS}\b")
_NO_FAILURE = re.compile(
    rf"\b(?:no|zero|0|without|nothing|none|never|nor) {_A_FEW}{_FAILS}\b"
    rf"|\b(?:not|n't|doesn t|don t|didn t) {_A_FEW}{_FAILS}\b"
)
_NO_PASS = re.compile(
    rf"\b(?:no|not|none|never|cannot|nothing|doesn t|don t|didn t|won t|isn t|fails? to|failed to)"
    rf" {_A_FEW}{_PASSES}\b"
)
# Perhaps of success.
_FINE = re.compile(r"\b(?:ok|okay|works?|working|worked|fine|clean|healthy|good)\b")


def says(claim: str) -> Says:
    """What the words of a claim say of a run."""
    text = _words(claim[:_LONGEST])
    if _PLAINLY_FAILS.search(text):
        return "fails"
    text, no_failures = _NO_FAILURE.subn(" ", text)
    text, no_passes = _NO_PASS.subn(" ", text)
    good = bool(no_failures) or bool(re.search(rf"\b{_PASSES}\b", text))
    bad = bool(no_passes) or bool(re.search(rf"\b{_FAILS}\b|\bexcept\b", text))
    if good and bad:
        return "unclear"
    if good:
        return "passes"
    return "fails" if bad else ("unclear" if _FINE.search(text) else "")


def tells_of_failure(output: str) -> bool:
    """Does a program say that something failed, with a number before it?"""
    return any(_PLAINLY_FAILS.search(_words(line)) for line in output.split("\n"))


def _words(text: str) -> str:
    return " ".join(re.sub(r"[^\w ]+", " ", text.casefold()).split())
