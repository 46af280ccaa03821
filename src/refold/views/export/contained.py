"""Markdown of somebody else inside a document of ours: it ends where it ends. Pure.

A fence that was not closed, a comment or an element of HTML would take in all that comes
after it. Whether a text does that is asked of a parser, with words put behind it; what
cannot be helped stands in a fence as it is.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CODE = re.compile(
    r"(?<!`)(`+)(?!`)(?:.+?)(?<!`)\1(?!`)|^ {0,3}(```+|~~~+).*?^ {0,3}\2", re.S | re.M
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_AFTER = "after-all-of-it"
_LONGEST = 200_000  # characters that are parsed; more stand in a fence


Contained = Callable[[str], str]


def containing() -> Contained:
    """What gives a text as it came where that does no harm, and else as near as can be."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")

    def contained(text: str) -> str:
        if len(text) > _LONGEST:
            return fenced(text)
        return next((each for each in _ways(text) if _harmless(each, parser)), fenced(text))

    return contained


def fenced(text: str, language: str = "") -> str:
    """In a fence that no line of the text can close."""
    shown = text.rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def _ways(text: str) -> Iterator[str]:
    yield text
    closing = [found[1] for found in _FENCE.finditer(text)]
    if closing:
        yield f"{text}\n{closing[-1]}"
        yield f"{text}\n{closing[0]}"
    without = _without_tags(text)
    yield without
    if closing:
        yield f"{without}\n{closing[-1]}"


def _harmless(text: str, parser: "MarkdownIt") -> bool:
    """Do words behind it stand alone, and is nothing in it HTML?"""
    found = parser.parse(f"{text}\n\n{_AFTER}\n")
    last = found[-2:-1]
    alone = [(t.content, t.level) for t in last] == [(_AFTER, 1)]
    every = [t for token in found for t in (token, *(token.children or ()))]
    return alone and not any(t.type.startswith("html_") for t in every)


def _without_tags(text: str) -> str:
    """Tags become text; code keeps its own."""
    made, at = "", 0
    for code in _CODE.finditer(text):
        made += _TAG.sub(r"\\<", text[at : code.start()]) + code[0]
        at = code.end()
    return made + _TAG.sub(r"\\<", text[at:])
