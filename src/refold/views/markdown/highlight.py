"""Highlight code line by line as it arrives.

The lexers are those of pygments. They read whole texts; here each line continues in the state
that the last one ended in, so no line is read twice. What a lexer would find only with later
lines, such as the end of a long comment, is found here or stays unstyled.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from refold.views.styled import Piece, Style

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_Then: TypeAlias = str | int | tuple[str, ...]
_Match: TypeAlias = Callable[[str, int], re.Match[str] | None]
_Table: TypeAlias = Mapping[str, list[tuple[_Match, Any, _Then | None]]]
_LONGEST = 1_000  # characters; longer lines are not highlighted
_MOST = 50  # states that a letter may lead through
_NAME = re.compile(r"[\w+#.-]{1,30}")
# By the dotted name of the kind of token, the nearest wins.
_STYLES: Mapping[str, Style] = {
    "Comment": "comment", "Keyword": "keyword", "Operator.Word": "keyword",
    "Literal.String": "string", "Literal.Number": "number", "Name.Function": "name",
    "Name.Class": "name", "Name.Tag": "name", "Name.Decorator": "builtin",
    "Name.Builtin": "builtin", "Name.Attribute": "builtin", "Name.Exception": "builtin",
    "Name.Variable": "name", "Generic.Deleted": "gone", "Generic.Inserted": "added",
    "Generic.Subheading": "hunk", "Generic.Heading": "strong", "Generic.Prompt": "dim",
    "Generic.Output": "dim", "Generic.Strong": "strong", "Generic.Emph": "emphasis",
}  # fmt: skip


class Highlighter:
    """One code block. An unknown language has no colours."""

    def __init__(self, info: str) -> None:
        self._lexer = _lexer(info)
        self._stack = ["root"]
        self._in_comment = False
        self._comments = self._lexer is not None and _has_comments(self._lexer)

    def line(self, text: str) -> list[Piece]:
        if self._lexer is None or len(text) > _LONGEST or not text.strip():
            return [("code", text)]
        if self._in_comment:
            head, end, rest = text.partition("*/")
            self._in_comment = not end
            return [("comment", head + end), *(self.line(rest) if rest else [])]
        try:
            found = list(_read(self._lexer, f"{text}\n", self._stack))
        except Exception:
            self._lexer = None
            return [("code", text)]
        pieces = _styled(found)
        if "".join(part for _, part in pieces) != text:
            return [("code", text)]
        return self._open_comment(text, pieces) if self._comments else pieces

    def _open_comment(self, text: str, pieces: list[Piece]) -> list[Piece]:
        """A comment that this line begins and does not end."""
        start = text.rfind("/*")
        if start < 0 or "*/" in text[start + 2 :]:
            return pieces
        kept, at = list[Piece](), 0
        for style, part in pieces:
            if at <= start < at + len(part):
                if style == "string":
                    return pieces
                kept.append((style, part[: start - at]))
                break
            kept.append((style, part))
            at += len(part)
        self._in_comment = True
        return [*(each for each in kept if each[1]), ("comment", text[start:])]


def _lexer(info: str) -> "Lexer | None":
    found = _NAME.match(info.strip().lstrip("{").lstrip("."))
    if found is None:
        return None
    from pygments.lexers import (
        get_all_lexers,  # pyright: ignore[reportUnknownVariableType] - untyped
        get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] - untyped
    )

    name = found[0].lower()
    # `get_lexer_by_name` alone would search every installed package for plug-ins.
    known = cast(
        "Iterator[tuple[str, tuple[str, ...], object, object]]",
        get_all_lexers(plugins=False),
    )
    if not any(name in aliases for _, aliases, *_ in known):
        return None
    return get_lexer_by_name(name, startinline=True)  # PHP without its opening mark


def _has_comments(lexer: "Lexer") -> bool:
    """Does /* begin a comment in this language?"""
    try:
        found = _styled(list(_read(lexer, "/* */\n", ["root"])))
    except Exception:
        return False
    return {style for style, text in found if text.strip()} == {"comment"}


def _read(lexer: "Lexer", line: str, stack: list[str]) -> Iterator[tuple[str, str]]:
    """The tokens of a line as (kind, text); `stack` is the lexer's state and is changed in place."""
    from pygments.lexer import ExtendedRegexLexer, RegexLexer

    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        for _, kind, text in lexer.get_tokens_unprocessed(line):
            yield str(kind), text
        return
    # The table that a lexer is made of has no other name.
    rules = cast("_Table", lexer._tokens)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportPrivateUsage, reportUnknownVariableType]
    at = steps = 0
    while at < len(line):
        steps += 1
        if steps > _MOST * len(line):
            raise RecursionError(f"the lexer of {lexer.name} goes round in {line!r}")
        for match, act, then in rules[stack[-1]]:
            if found := match(line, at):
                yield from _tokens(lexer, act, found)
                at = found.end()
                if then is not None:
                    _go(stack, then)
                break
        else:
            if line[at] == "\n":
                stack[:] = ["root"]
            yield "Token.Text", line[at]
            at += 1


def _tokens(lexer: "Lexer", act: Any, found: re.Match[str]) -> Iterator[tuple[str, str]]:
    if act is None:
        return
    if isinstance(act, tuple):  # a kind of token is one
        yield str(cast("object", act)), found[0]
        return
    for _, kind, text in act(lexer, found):
        yield str(kind), text


def _go(stack: list[str], then: _Then) -> None:
    for step in then if isinstance(then, tuple) else (then,):
        if step == "#pop":
            del stack[max(len(stack) - 1, 1) :]
        elif step == "#push":
            stack.append(stack[-1])
        elif isinstance(step, int):
            del stack[max(len(stack) + step, 1) :]
        else:
            stack.append(step)


def _styled(found: list[tuple[str, str]]) -> list[Piece]:
    pieces: list[Piece] = []
    for kind, text in found:
        style, words = _style(kind), text.replace("\n", "")
        if pieces and pieces[-1][0] == style:
            pieces[-1] = (style, pieces[-1][1] + words)
        elif words:
            pieces.append((style, words))
    return pieces


def _style(kind: str) -> Style:
    name = kind.removeprefix("Token.")
    while name:
        if found := _STYLES.get(name):
            return found
        name = name.rpartition(".")[0]
    return "code"
