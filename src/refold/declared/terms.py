"""Reads and writes Prolog terms: what a file of facts needs, as ISO 13211-1 has it.

Operators (also `:- op`), quoted atoms, strings, escapes, numbers, lists with tails, curly
terms and comments. Nothing is run: a clause is data. `facts` says what the terms mean.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from refold.errors import BadInput

_MAX_DEPTH = 200
_MAX_FILE_CHARS = 4_000_000  # of a file
_MAX_VALUE_CHARS = 65_536  # of one atom or string


class Atom(Struct, frozen=True):
    name: str


class QuotedText(Struct, frozen=True):
    """A string in double quotes."""

    value: str


class Number(Struct, frozen=True):
    value: int | float


class Variable(Struct, frozen=True):
    name: str


class Compound(Struct, frozen=True):
    """A list is `'[|]'(Head, Tail)` that ends in `[]`."""

    name: str
    arguments: tuple["Term", ...]


Term: TypeAlias = Atom | QuotedText | Number | Variable | Compound
EMPTY, PAIR = Atom("[]"), "[|]"


class Clause(Struct, frozen=True):
    term: Term
    line: int


Kind: TypeAlias = Literal["xfx", "xfy", "yfx", "fy", "fx", "xf", "yf"]


class Operator(NamedTuple):
    priority: int
    kind: Kind


class Operators:
    """The operators of one file: those of the standard, and those that it adds."""

    def __init__(self) -> None:
        self.prefix = dict[str, Operator]()
        self.infix = dict[str, Operator]()
        self.postfix = dict[str, Operator]()
        for priority, kind, names in _STANDARD_OPERATORS:
            for name in names.split():
                self.add(priority, kind, name)

    def add(self, priority: int, kind: Kind, name: str) -> None:
        outer = self.prefix if kind.startswith("f") else self.postfix
        by = self.infix if len(kind) == 3 else outer
        if priority:
            by[name] = Operator(priority, kind)
        else:
            by.pop(name, None)

    def has(self, name: str) -> bool:
        return name in self.prefix or name in self.infix or name in self.postfix


_STANDARD_OPERATORS: tuple[tuple[int, Kind, str], ...] = (
    (1200, "xfx", ":- -->"), (1200, "fx", ":- ?-"), (1100, "xfy", "; |"), (1105, "xfy", "|"),
    (1050, "xfy", "-> *->"), (1000, "xfy", ","), (990, "xfx", ":="), (900, "fy", "\\+"),
    (700, "xfx", "= \\= == \\== @< @> @=< @>= =.. is =:= =\\= < > =< >= as"),
    (600, "xfy", ":"), (500, "yfx", "+ - /\\ \\/ xor"),
    (400, "yfx", "* / // rem mod div << >> divmod rdiv"),
    (200, "xfx", "**"), (200, "xfy", "^"), (200, "fy", "- + \\"), (1150, "fx",
    "dynamic discontiguous initialization module_transparent multifile table"),
    (100, "yfx", "."), (1, "fx", "$"),
)  # fmt: skip


class Token(NamedTuple):
    """`before`: whether white space precedes it. `kind` of `(` after a name is "call"."""

    kind: Literal[
        "atom", "quoted", "text", "number", "variable", "mark", "call", "end", "eof"
    ]
    value: str | int | float
    line: int
    before: bool


_SPACE_PATTERN = re.compile(r"(?:\s+|%[^\n]*|/\*(?s:.*?)\*/)+")
_WORD_PATTERN = re.compile(r"[^\W\d_A-Z]\w*|[#$&*+\-./:<=>?@^~\\]+|[!;,|]")
_VARIABLE_PATTERN = re.compile(r"[A-Z_]\w*")
_NUMBER_PATTERN = re.compile(
    r"0'(?:\\(?:x[0-9a-fA-F]+\\?|[0-7]+\\|.)|''|[^\\'\n])|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+"
    r"|\d+(?:_\d+)*(?:\.\d+(?:[eE][+-]?\d+)?)?"
)
_ESCAPE_CHARS = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "e": "\x1b",
    "s": " ", "0": "\0", "\\": "\\", "'": "'", '"': '"', "`": "`", "z": "",
}  # fmt: skip


class TermReader:
    """Reads the clauses of a text, one after the other. Raises `BadInput` with the line."""

    def __init__(self, text: str, file: str) -> None:
        self._file, self.operators = file, Operators()
        if len(text) > _MAX_FILE_CHARS:
            raise BadInput(f"{file} has more than {_MAX_FILE_CHARS:,} characters")
        self._tokens = _Tokens(text, file)
        self._token = self._tokens.next()
        self._depth = 0

    def clauses(self) -> Iterator[Clause]:
        while self._token.kind != "eof":
            line = self._token.line
            term = self._term(1200)
            if self._token.kind != "end":
                raise self._error(
                    f"expected . at the end of a clause, found {self._describe_token()}"
                )
            match term:  # before the next token is read with it
                case Compound(":-", (Compound("op", (Number(int(p)), Atom(kind), ops)),)):
                    self._declare(p, kind, ops)
                case _:
                    pass
            self._advance()
            yield Clause(term, line)

    def _declare(self, priority: int, kind: str, operators: Term) -> None:
        names = items_of(operators)
        for operator in [operators] if names is None else names:
            if kind not in ("xfx", "xfy", "yfx", "fy", "fx", "xf", "yf") or not (
                isinstance(operator, Atom) and 0 <= priority <= 1200
            ):
                raise self._error(
                    "op/3 takes a priority from 0 to 1200, a type such as xfx, and atoms"
                )
            self.operators.add(priority, kind, operator.name)

    def _term(self, limit: int) -> Term:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"terms are nested more than {_MAX_DEPTH} levels deep")
        left, priority = self._primary(limit)
        left = self._infix(left, priority, limit)
        self._depth -= 1
        return left

    def _infix(self, left: Term, priority: int, limit: int) -> Term:
        while True:
            name = self._operator_here()
            if name is None:
                return left
            if op := self.operators.infix.get(name):
                own = op.priority
                least_left = own if op.kind[0] == "y" else own - 1
                if own <= limit and priority <= least_left:
                    self._advance()
                    right = self._term(own if op.kind[2] == "y" else own - 1)
                    left, priority = Compound(name, (left, right)), own
                    continue
            if op := self.operators.postfix.get(name):
                own = op.priority
                if own <= limit and priority <= (own if op.kind[0] == "y" else own - 1):
                    self._advance()
                    left, priority = Compound(name, (left,)), own
                    continue
            return left

    def _operator_here(self) -> str | None:
        token = self._token
        if token.kind == "atom" or (token.kind == "mark" and token.value in (",", "|")):
            return str(token.value)
        return None

    def _primary(self, limit: int) -> tuple[Term, int]:
        token = self._token
        match token.kind:
            case "number":
                self._advance()
                return Number(cast("int | float", token.value)), 0
            case "text":
                self._advance()
                return QuotedText(str(token.value)), 0
            case "variable":
                self._advance()
                return Variable(str(token.value)), 0
            case "atom" | "quoted":
                return self._term_of_name(token, limit)
            case "mark" | "call":
                return self._term_in_brackets(token), 0
            case _:
                raise self._error(f"expected a term, found {self._describe_token()}")

    def _term_of_name(self, token: Token, limit: int) -> tuple[Term, int]:
        name = str(token.value)
        self._advance()
        if self._token.kind == "call":
            return Compound(name, self._arguments(")")), 0
        if name == "-" and token.kind == "atom" and self._is_number_next():
            value = cast("int | float", self._token.value)
            self._advance()
            return Number(-value), 0
        prefix = self.operators.prefix.get(name) if token.kind == "atom" else None
        if prefix and not self._ends_operand():
            own = min(prefix.priority, 999) if limit < prefix.priority else prefix.priority
            argument = self._term(own if prefix.kind == "fy" else own - 1)
            return Compound(name, (argument,)), own
        atom = Atom(name)
        if token.kind == "atom" and self.operators.has(name):
            infix = self.operators.infix.get(name)
            priority = max((o.priority for o in (prefix, infix) if o), default=0)
            return atom, priority if priority <= limit else 0
        return atom, 0

    def _is_number_next(self) -> bool:
        return self._token.kind == "number" and not self._token.before

    def _ends_operand(self) -> bool:
        """Return True if no operand follows, so that the operator is an atom."""
        token = self._token
        if token.kind in ("end", "eof") or (
            token.kind == "mark" and token.value in (")", "]", "}", ",", "|")
        ):
            return True
        name = str(token.value)
        is_infix = token.kind == "atom" and name in self.operators.infix
        return is_infix and name not in self.operators.prefix and not self._tokens.opens()

    def _term_in_brackets(self, token: Token) -> Term:
        self._advance()
        match token.value:
            case "(":
                term = self._term(1200)
                self._expect(")")
                return term
            case "[":
                if self._is_mark("]"):
                    self._advance()
                    return EMPTY
                return self._list()
            case "{":
                if self._is_mark("}"):
                    self._advance()
                    return Atom("{}")
                term = self._term(1200)
                self._expect("}")
                return Compound("{}", (term,))
            case _:
                raise self._error(f"expected a term, found {token.value!r}", token.line)

    def _list(self) -> Term:
        items = [self._term(999)]
        while self._is_mark(","):
            self._advance()
            items.append(self._term(999))
        tail: Term = EMPTY
        if self._is_mark("|"):
            self._advance()
            tail = self._term(999)
        self._expect("]")
        return list_of(items, tail)

    def _arguments(self, closing: str) -> tuple[Term, ...]:
        self._advance()
        arguments = [self._term(999)]
        while self._is_mark(","):
            self._advance()
            arguments.append(self._term(999))
        self._expect(closing)
        return tuple(arguments)

    def _is_mark(self, value: str) -> bool:
        return self._token.kind == "mark" and self._token.value == value

    def _expect(self, value: str) -> None:
        if not self._is_mark(value):
            raise self._error(f"expected {value}, found {self._describe_token()}")
        self._advance()

    def _advance(self) -> None:
        self._token = self._tokens.next()

    def _describe_token(self) -> str:
        match self._token.kind:
            case "eof":
                return "the end of the file"
            case "end":
                return "the end of the clause"
            case _:
                return repr(str(self._token.value)[:40])

    def _error(self, problem: str, line: int = 0) -> BadInput:
        return BadInput(f"{self._file}:{line or self._token.line}: {problem}")


class _Tokens:
    """Cuts a text into tokens."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._index, self._line = 0, 1

    def opens(self) -> bool:
        """Return True if a bracket follows without white space."""
        return self._text[self._index : self._index + 1] == "("

    def next(self) -> Token:
        start = self._index
        if space := _SPACE_PATTERN.match(self._text, self._index):
            self._go_to(space.end())
        before = self._index > start or start == 0
        text, index, line = self._text, self._index, self._line
        if index >= len(text):
            return Token("eof", "", line, before)
        sign = text[index]
        if sign == "." and (
            index + 1 == len(text) or text[index + 1].isspace() or text[index + 1] == "%"
        ):
            self._index += 1
            return Token("end", ".", line, before)
        if text.startswith("/*", index):
            raise self._error("this comment has no end: */ is missing")
        if sign in "'\"`":
            return self._read_quoted(sign, line, before=before)
        return self._read_unquoted(sign, line, before=before)

    def _read_unquoted(self, sign: str, line: int, *, before: bool) -> Token:
        text, index = self._text, self._index
        if match := _NUMBER_PATTERN.match(text, index):
            self._go_to(match.end())
            return Token("number", self._value(match[0]), line, before)
        if match := _VARIABLE_PATTERN.match(text, index):
            self._go_to(match.end())
            return Token("variable", match[0], line, before)
        if sign in "()[]{},|":
            self._index += 2 if text.startswith("||", index) else 1
            after_name = sign == "(" and not before
            kind = "call" if after_name else "mark"
            return Token(kind, text[index : self._index], line, before)
        if match := _WORD_PATTERN.match(text, index):
            self._check_length(match[0])
            self._go_to(match.end())
            return Token("atom", match[0], line, before)
        raise self._error(f"{sign!r} is not allowed here")

    def _read_quoted(self, quote: str, line: int, *, before: bool) -> Token:
        pieces, text, index = list[str](), self._text, self._index + 1
        plain = re.compile(r"[^\\\n" + quote + "]+")
        while True:
            if match := plain.match(text, index):
                pieces.append(match[0])
                index = match.end()
            sign = text[index : index + 1]
            if sign == quote and text[index + 1 : index + 2] == quote:
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
        return Token("quoted" if quote == "'" else "text", value, line, before)

    def _escape(self, index: int) -> tuple[str, int]:
        text = self._text
        if text[index : index + 1] == "\n":
            return "", index + 1
        if match := re.compile(
            r"x([0-9a-fA-F]+)\\?|([0-7]+)\\|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
        ).match(text, index):
            code = int(match[1] or match[3] or match[4] or match[2], 8 if match[2] else 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._error(f"\\{match[0]} is not a character")
            return chr(code), match.end()
        sign = text[index : index + 1]
        if sign not in _ESCAPE_CHARS or not sign:
            raise self._error(f"there is no escape \\{sign}")
        return _ESCAPE_CHARS[sign], index + 1

    def _value(self, text: str) -> int | float:
        if text.startswith("0'"):
            escape = text[2:]
            if escape.startswith("\\"):
                return ord(self._escape(self._index - len(escape) + 1)[0] or "\0")
            return ord(escape[0])
        if text[:2] in ("0x", "0o", "0b"):
            return int(text, 0)
        self._check_length(text, 1000)
        plain = text.replace("_", "")
        return float(plain) if "." in plain else int(plain)

    def _check_length(self, value: str, limit: int = _MAX_VALUE_CHARS) -> None:
        if len(value) > limit:
            raise self._error(f"an atom, text or number has more than {limit:,} characters")

    def _go_to(self, index: int) -> None:
        self._line += self._text.count("\n", self._index, index)
        self._index = index

    def _error(self, problem: str) -> BadInput:
        return BadInput(f"{self._file}:{self._line}: {problem}")


def read_terms(content: bytes, file: str) -> tuple[Clause, ...]:
    """All clauses. Raises `BadInput` with the line, also for a file that is not text."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}:{line}: it is not UTF-8: {error.reason}") from error
    if (index := text.find("\0")) >= 0:
        line = text.count("\n", 0, index) + 1
        raise BadInput(f"{file}:{line}: it has a NUL character")
    return tuple(TermReader(text, file).clauses())


def list_of(items: list[Term], tail: Term = EMPTY) -> Term:
    for item in reversed(items):
        tail = Compound(PAIR, (item, tail))
    return tail


def items_of(term: Term) -> list[Term] | None:
    """The items of a list that has an end; None for any other term."""
    items = list[Term]()
    while isinstance(term, Compound) and term.name == PAIR and len(term.arguments) == 2:
        items.append(term.arguments[0])
        term = term.arguments[1]
    return items if term == EMPTY else None


def term_text(term: Term) -> str:
    """The term as Prolog reads it back, without operators."""
    match term:
        case Atom(name):
            return _atom(name)
        case QuotedText(value):
            return _in_quotes(value, '"')
        case Number(value):
            return repr(value)
        case Variable(name):
            return name
        case Compound(name, arguments) if name == PAIR and len(arguments) == 2:
            return _list_text(term)
        case Compound(name, arguments):
            return f"{_atom(name)}({', '.join(map(term_text, arguments))})"


def _list_text(term: Term) -> str:
    parts = list[str]()
    while isinstance(term, Compound) and term.name == PAIR and len(term.arguments) == 2:
        parts.append(term_text(term.arguments[0]))
        term = term.arguments[1]
    tail = "" if term == EMPTY else f"|{term_text(term)}"
    return f"[{', '.join(parts)}{tail}]"


def _atom(name: str) -> str:
    if re.fullmatch(r"[a-z][a-zA-Z0-9_]*|\[\]|\{\}", name):
        return name
    return _in_quotes(name, "'")


def _in_quotes(value: str, quote: str) -> str:
    letters = (
        f"\\{sign}" if sign in (quote, "\\")
        else sign if sign.isprintable()
        else f"\\x{ord(sign):x}\\"
        for sign in value
    )  # fmt: skip
    return f"{quote}{''.join(letters)}{quote}"
