"""Splits a text of Prolog terms into tokens, as ISO 13211-1 defines them.

`terms` builds terms from the tokens.
"""

import re
from typing import Literal, NamedTuple

from refold.errors import BadInput

_MAX_VALUE_CHARS = 65_536  # of one atom or string


class Token(NamedTuple):
    """A token of Prolog. A `(` directly after a name has the `kind` "call"."""

    kind: Literal[
        "atom", "quoted", "text", "number", "variable", "mark", "call", "end", "eof"
    ]
    value: str | int | float
    line: int
    after_space: bool  # whether white space precedes it


# White space and comments.
_SPACE_PATTERN = re.compile(r"(?:\s+|%[^\n]*|/\*(?s:.*?)\*/)+")
# A word that does not begin with a capital, a run of symbols, or a mark that is an atom.
_WORD_PATTERN = re.compile(r"[^\W\d_A-Z]\w*|[#$&*+\-./:<=>?@^~\\]+|[!;,|]")
_VARIABLE_PATTERN = re.compile(r"[A-Z_]\w*")
# A character code like 0'a, a number to the base 16, 8 or 2, and a decimal number.
_NUMBER_PATTERN = re.compile(
    r"0'(?:\\(?:x[0-9a-fA-F]+\\?|[0-7]+\\|.)|''|[^\\'\n])|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+"
    r"|\d+(?:_\d+)*(?:\.\d+(?:[eE][+-]?\d+)?)?"
)
# After the backslash, a character by its number: x41\\, 101\\, u0041 or U00000041.
_CODE_ESCAPE_PATTERN = re.compile(
    r"x([0-9a-fA-F]+)\\?|([0-7]+)\\|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
)
_ESCAPE_CHARS = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "e": "\x1b",
    "s": " ", "0": "\0", "\\": "\\", "'": "'", '"': '"', "`": "`", "z": "",
}  # fmt: skip


class Tokens:
    """Splits a text into tokens, one at each call of `next`."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._index, self._line = 0, 1

    def opens(self) -> bool:
        """Return whether the next character is "("."""
        return self._text[self._index : self._index + 1] == "("

    def next(self) -> Token:
        """Return the next token. At the end of the text, its kind is "eof"."""
        start = self._index
        if space := _SPACE_PATTERN.match(self._text, self._index):
            self._go_to(space.end())
        after_space = self._index > start or start == 0
        text, index, line = self._text, self._index, self._line
        if index >= len(text):
            return Token("eof", "", line, after_space)
        sign = text[index]
        following = text[index + 1 : index + 2]
        # A dot before white space, a comment or the end of the text ends a clause.
        may_end_clause = not following or following.isspace() or following == "%"
        if sign == "." and may_end_clause:
            self._index += 1
            return Token("end", ".", line, after_space)
        if text.startswith("/*", index):
            raise self._error("this comment has no end: */ is missing")
        if sign in "'\"`":
            return self._read_quoted(sign, line, after_space=after_space)
        return self._read_unquoted(sign, line, after_space=after_space)

    def _read_unquoted(self, sign: str, line: int, *, after_space: bool) -> Token:
        """Return the token that begins with the character `sign`, and advance to its end."""
        text, index = self._text, self._index
        if match := _NUMBER_PATTERN.match(text, index):
            self._go_to(match.end())
            return Token("number", self._number(match[0]), line, after_space)
        if match := _VARIABLE_PATTERN.match(text, index):
            self._go_to(match.end())
            return Token("variable", match[0], line, after_space)
        if sign in "()[]{},|":
            self._index += 2 if text.startswith("||", index) else 1
            after_name = sign == "(" and not after_space
            kind = "call" if after_name else "mark"
            return Token(kind, text[index : self._index], line, after_space)
        if match := _WORD_PATTERN.match(text, index):
            self._check_length(match[0])
            self._go_to(match.end())
            return Token("atom", match[0], line, after_space)
        raise self._error(f"{sign!r} is not allowed here")

    def _read_quoted(self, quote: str, line: int, *, after_space: bool) -> Token:
        """Read a quoted atom or text, in which a doubled quote stands for one."""
        text = self._text
        index = self._index + 1  # after the opening quote
        pieces = list[str]()
        plain = re.compile(r"[^\\\n" + quote + "]+")
        while True:
            if match := plain.match(text, index):
                pieces.append(match[0])
                index = match.end()
            sign = text[index : index + 1]
            if text.startswith(quote * 2, index):
                pieces.append(quote)
                index += 2
            elif sign == quote:
                break
            elif sign == "\\":
                piece, index = self._escape(index + 1)
                pieces.append(piece)
            else:
                raise self._error(f"this {quote} has no end on its line")
        value = "".join(pieces)
        self._check_length(value)
        self._go_to(index + 1)
        if quote == "`":
            raise self._error(
                "text in backquotes is not supported: write it in double quotes"
            )
        return Token("quoted" if quote == "'" else "text", value, line, after_space)

    def _escape(self, index: int) -> tuple[str, int]:
        """Return the character of the escape at `index`, and the index after the escape.

        The character is "" for an escaped line end.
        """
        text = self._text
        if text[index : index + 1] == "\n":
            return "", index + 1
        if match := _CODE_ESCAPE_PATTERN.match(text, index):
            octal = match[2]
            hexadecimal = match[1] or match[3] or match[4]
            code = int(octal, 8) if octal else int(hexadecimal, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._error(f"\\{match[0]} is not a character")
            return chr(code), match.end()
        sign = text[index : index + 1]
        if sign not in _ESCAPE_CHARS:
            raise self._error(f"there is no escape \\{sign}")
        return _ESCAPE_CHARS[sign], index + 1

    def _number(self, text: str) -> int | float:
        """Return the value of a number, or the code of a character after 0'."""
        if text.startswith("0'"):
            character = text[2:]
            if character.startswith("\\"):
                # `_index` is already after the number.
                after_backslash = self._index - len(character) + 1
                escaped, _ = self._escape(after_backslash)
                return ord(escaped or "\0")
            return ord(character[0])
        if text[:2] in ("0x", "0o", "0b"):
            return int(text, 0)
        self._check_length(text, 1000)
        plain = text.replace("_", "")
        return float(plain) if "." in plain else int(plain)

    def _check_length(self, value: str, limit: int = _MAX_VALUE_CHARS) -> None:
        if len(value) > limit:
            raise self._error(f"an atom, text or number has more than {limit:,} characters")

    def _go_to(self, index: int) -> None:
        """Advance to the index, and count the lines up to it."""
        self._line += self._text.count("\n", self._index, index)
        self._index = index

    def _error(self, problem: str) -> BadInput:
        return BadInput(f"{self._file}:{self._line}: {problem}")
