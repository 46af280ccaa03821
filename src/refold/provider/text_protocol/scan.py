"""Finds where a JSON value in a stream of text ends, and whether it can be one.

It counts brackets and knows strings; it does not decode. A character that JSON
has no place for ends it at once, so that prose is not held back for long. Each
character is looked at once, however the text was cut.
"""

import json
import re
from typing import Any, Literal, NoReturn

_STRUCTURE = re.compile(r"[\s,:\d.+\-eEtrufalsnTFNo]*")  # with what numbers and words have
_STRING = re.compile(r'[^"\\]*')
_CLOSES = {"{": "}", "[": "]"}
# A string that does not end is passed over too, lest its every quote be tried anew.
_MENDED = re.compile(
    r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))|,(?=\s*[}\]])|\b(?:True|False|None)\b', re.DOTALL
)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Scan:
    """`state` is "open" until the value is "whole" or something is "wrong"."""

    def __init__(self) -> None:
        self.state: Literal["open", "whole", "wrong"] = "open"
        self._awaited: list[str] = []
        self._in_string = self._escaped = False

    def feed(self, text: str, at: int) -> int:
        """Go on from `at`; how far it got. What is wrong is not passed."""
        while at < len(text) and self.state == "open":
            at = self._string(text, at) if self._in_string else self._structure(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        at = _end(_STRING, text, at)
        if at < len(text):
            self._escaped = text[at] == "\\"
            self._in_string = self._escaped
            at += 1
        return at

    def _structure(self, text: str, at: int) -> int:
        at = _end(_STRUCTURE, text, at)
        if at == len(text):
            return at
        match text[at]:
            case '"':
                self._in_string = True
            case "{" | "[" as opening:
                self._awaited.append(_CLOSES[opening])
            case closing if self._awaited and closing == self._awaited[-1]:
                self._awaited.pop()
                if not self._awaited:
                    self.state = "whole"
            case _:
                self.state = "wrong"
                return at
        return at + 1


def decoded(text: str) -> Any:
    """The value. Raises `ValueError` if it is none.

    Line breaks in strings, a comma too many and Python's words for true, false
    and null are taken for what they mean: there is only one thing they can mean.
    """
    try:
        return _loads(text)
    except ValueError:
        return _loads(_MENDED.sub(_mended, text))


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _mended(found: re.Match[str]) -> str:
    return found[1] or _JSON_WORDS.get(found[0], "")


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
