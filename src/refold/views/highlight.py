"""Highlights code line by line, as the lines arrive.

The lexers of pygments read whole texts. This module starts each line in the state in which the
line before it ended, so no line is read twice. A construct that a lexer recognizes only from
later lines, such as a long comment, is detected separately or stays unstyled.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from refold.views.styled import Piece, Style

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_Transition: TypeAlias = str | int | tuple[str, ...]
_Match: TypeAlias = Callable[[str, int], re.Match[str] | None]
_Table: TypeAlias = Mapping[str, list[tuple[_Match, Any, _Transition | None]]]
_MAX_LINE_CHARS = 1_000  # longer lines are not highlighted
_MAX_STATES_PER_CHAR = 50  # a lexer with more states for a line is in an endless loop
# Where several languages share a file suffix, this one is used.
_SHARED_SUFFIXES: Mapping[str, str] = {
    "h": "c", "m": "objective-c", "mm": "objective-c++", "pl": "perl", "pm": "perl",
    "s": "gas", "sql": "sql", "v": "verilog",
}  # fmt: skip
_NAME_PATTERN = re.compile(r"[\w+#.-]{1,30}")
# Styles by the dotted name of the token kind. The longest matching name wins.
_TOKEN_STYLES: Mapping[str, Style] = {
    "Comment": "comment", "Keyword": "keyword", "Operator.Word": "keyword",
    "Literal.String": "string", "Literal.Number": "number", "Name.Function": "name",
    "Name.Class": "name", "Name.Tag": "name", "Name.Decorator": "builtin",
    "Name.Builtin": "builtin", "Name.Attribute": "builtin", "Name.Exception": "builtin",
    "Name.Variable": "name", "Generic.Deleted": "gone", "Generic.Inserted": "added",
    "Generic.Subheading": "hunk", "Generic.Heading": "strong", "Generic.Prompt": "dim",
    "Generic.Output": "dim", "Generic.Strong": "strong", "Generic.Emph": "emphasis",
}  # fmt: skip


class Highlighter:
    """Highlights the lines of one code block. `info` begins with the name of the language.

    If the language is unknown, the code has no colours.
    """

    def __init__(self, info: str) -> None:
        lexer = _lexer(info)
        self._language_lexer = lexer
        self._has_block_comments = lexer is not None and _has_block_comments(lexer)
        self.restart()

    def restart(self) -> None:
        """Begin another text in this language."""
        self._lexer = self._language_lexer
        self._stack = ["root"]
        self._in_comment = False

    def style_line(self, text: str) -> list[Piece]:
        """Return the next line in styled pieces. If it cannot be highlighted, it is plain code."""
        if self._lexer is None or len(text) > _MAX_LINE_CHARS or not text.strip():
            return [("code", text)]
        if self._in_comment:
            head, end, rest = text.partition("*/")
            self._in_comment = not end
            comment: Piece = ("comment", head + end)
            return [comment, *self.style_line(rest)] if rest else [comment]
        try:
            tokens = list(_tokenize(self._lexer, f"{text}\n", self._stack))
        except Exception:
            self._lexer = None
            return [("code", text)]
        pieces = _to_pieces(tokens)
        if "".join(part for _, part in pieces) != text:
            return [("code", text)]
        return self._open_comment(text, pieces) if self._has_block_comments else pieces

    def _open_comment(self, text: str, pieces: list[Piece]) -> list[Piece]:
        """Style a comment that begins in this line and does not end in it.

        Lines are highlighted one by one, so the lexer takes such a comment for code. Other lines are
        returned unchanged, also if the mark of the comment is in a string.
        """
        comment_start = text.rfind("/*")
        if comment_start < 0 or "*/" in text[comment_start + 2 :]:
            return pieces
        code = list[Piece]()  # the pieces before the comment
        position = 0
        for style, part in pieces:
            end = position + len(part)
            if position <= comment_start < end:
                if style == "string":
                    return pieces
                if comment_start > position:
                    code.append((style, part[: comment_start - position]))
                break
            if part:
                code.append((style, part))
            position = end
        self._in_comment = True
        return [*code, ("comment", text[comment_start:])]


def language_of(path: str) -> str:
    """Return the language for `Highlighter` by the name of a file; "" if it is unknown."""
    _, _, name = path.rpartition("/")
    _, _, ending = name.rpartition(".")
    suffix = ending.lower()
    if language := _SHARED_SUFFIXES.get(suffix):
        return language
    patterns = {name, f"*.{suffix}"} if "." in name else {name}
    for _, aliases, files, _ in _all_lexers():
        if aliases and patterns.intersection(files):
            return aliases[0]
    return ""


def _all_lexers() -> "Iterator[tuple[str, tuple[str, ...], tuple[str, ...], object]]":
    """Yield the name, the aliases, the file patterns and the media types of each lexer."""
    from pygments.lexers import (
        get_all_lexers,  # pyright: ignore[reportUnknownVariableType] - untyped
    )

    # Searching every installed package for plug-ins would take long.
    return cast(
        "Iterator[tuple[str, tuple[str, ...], tuple[str, ...], object]]",
        get_all_lexers(plugins=False),
    )


def _lexer(info: str) -> "Lexer | None":
    """Return the lexer for the text after a fence, such as "python", or None."""
    match = _NAME_PATTERN.match(info.strip().lstrip("{").lstrip("."))
    if match is None:
        return None
    from pygments.lexers import (
        get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] - untyped
    )

    name = match[0].lower()
    if not any(name in aliases for _, aliases, *_ in _all_lexers()):
        return None
    # `startinline` is an option for PHP: the code may have no opening mark.
    return get_lexer_by_name(name, startinline=True)


def _has_block_comments(lexer: "Lexer") -> bool:
    """Whether /* begins a comment in the language of this lexer."""
    try:
        pieces = _to_pieces(list(_tokenize(lexer, "/* */\n", ["root"])))
    except Exception:
        return False
    return {style for style, text in pieces if text.strip()} == {"comment"}


def _tokenize(lexer: "Lexer", line: str, stack: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a line as pairs of kind and text.

    `stack` is the state of the lexer, and is changed in place.
    """
    from pygments.lexer import ExtendedRegexLexer, RegexLexer

    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        for _, kind, text in lexer.get_tokens_unprocessed(line):
            yield str(kind), text
        return
    # The lexer's table has no public name.
    rules = cast("_Table", lexer._tokens)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportPrivateUsage, reportUnknownVariableType]
    max_steps = _MAX_STATES_PER_CHAR * len(line)
    position = steps = 0
    while position < len(line):
        steps += 1
        if steps > max_steps:
            raise RecursionError(f"the lexer of {lexer.name} goes round in {line!r}")
        for match, action, transition in rules[stack[-1]]:
            if hit := match(line, position):
                yield from _tokens(lexer, action, hit)
                position = hit.end()
                if transition is not None:
                    _change_state(stack, transition)
                break
        else:  # no rule matches this character
            if line[position] == "\n":
                stack[:] = ["root"]  # pygments does the same
            yield "Token.Text", line[position]
            position += 1


def _tokens(lexer: "Lexer", action: Any, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a match.

    `action` is from a rule of pygments: a kind of token, a function that makes tokens, or None.
    """
    if action is None:
        return
    if isinstance(action, tuple):  # the kinds of pygments are tuples
        yield str(cast("object", action)), match[0]
        return
    for _, kind, text in action(lexer, match):
        yield str(kind), text


def _change_state(stack: list[str], transition: _Transition) -> None:
    """Change the stack of states in place, as a rule of pygments says.

    The rule names new states, "#pop" or "#push", or is -n to remove n states. The first state
    stays.
    """
    for step in transition if isinstance(transition, tuple) else (transition,):
        if step == "#pop":
            del stack[max(len(stack) - 1, 1) :]
        elif step == "#push":
            stack.append(stack[-1])
        elif isinstance(step, int):
            del stack[max(len(stack) + step, 1) :]
        else:
            stack.append(step)


def _to_pieces(tokens: list[tuple[str, str]]) -> list[Piece]:
    """Return the tokens of a line as styled pieces."""
    pieces: list[Piece] = []
    for kind, text in tokens:
        style, words = _style(kind), text.replace("\n", "")
        if pieces and pieces[-1][0] == style:
            pieces[-1] = (style, pieces[-1][1] + words)
        elif words:
            pieces.append((style, words))
    return pieces


def _style(kind: str) -> Style:
    """Return the style for a kind of token; "code" if it has none of its own."""
    name = kind.removeprefix("Token.")
    while name:
        if style := _TOKEN_STYLES.get(name):
            return style
        name = name.rpartition(".")[0]
    return "code"
