"""Reads and writes Prolog terms: what a file of facts needs, as ISO 13211-1 has it.

Operators (also `:- op`), quoted atoms, strings, escapes, numbers, lists with tails, curly
terms and comments. Nothing is run: a clause is data. `facts` says what the terms mean.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from refold.errors import BadInput

_DEEPEST = 200  # levels of terms
_LARGEST = 4_000_000  # characters of a file
_LONGEST = 65_536  # characters of one atom or string


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
        for priority, kind, names in _STANDARD:
            for name in names.split():
                self.add(priority, kind, name)

    def add(self, priority: int, kind: Kind, name: str) -> None:
        outer = self.prefix if kind.startswith("f") else self.postfix
        by = self.infix if len(kind) == 3 else outer
        if priority:
            by[name] = Operator(priority, kind)
        else:
            by.pop(name, None)

    def named(self, name: str) -> bool:
        return name in self.prefix or name in self.infix or name in self.postfix


_STANDARD: tuple[tuple[int, Kind, str], ...] = (
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
    """`before`: is there white space before it? `kind` of `(` after a name is "call"."""

    kind: Literal[
        "atom", "quoted", "text", "number", "variable", "mark", "call", "end", "eof"
    ]
    value: str | int | float
    line: int
    before: bool


_SPACE = re.compile(r"(?:\s+|%[^\n]*|/\*(?s:.*?)\*/)+")
_WORD = re.compile(r"[^\W\d_A-Z]\w*|[#$&*+\-./:<=>?@^~\\]+|[!;,|]")
_VARIABLE = re.compile(r"[A-Z_]\w*")
_NUMBER = re.compile(
    r"0'(?:\\(?:x[0-9a-fA-F]+\\?|[0-7]+\\|.)|''|[^\\'\n])|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+"
    r"|\d+(?:_\d+)*(?:\.\d+(?:[eE][+-]?\d+)?)?"
)
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "e": "\x1b",
    "s": " ", "0": "\0", "\\": "\\", "'": "'", '"': '"', "`": "`", "z": "",
}  # fmt: skip


class TermReader:
    """Reads the clauses of a text, one after the other. Raises `BadInput` with the line."""

    def __init__(self, text: str, file: str) -> None:
        self._file, self.operators = file, Operators()
        if len(text) > _LARGEST:
            raise BadInput(f"{file} has more than {_LARGEST:,} characters")
        self._tokens = _Tokens(text, file)
        self._now = self._tokens.next()
        self._depth = 0

    def clauses(self) -> Iterator[Clause]:
        while self._now.kind != "eof":
            line = self._now.line
            term = self._term(1200)
            if self._now.kind != "end":
                raise self._wrong(
                    f"expected . at the end of a clause, found {self._seen()}"
                )
            match term:  # before the next token is read with it
                case Compound(":-", (Compound("op", (Number(int(p)), Atom(kind), what)),)):
                    self._declare(p, kind, what)
                case _:
                    pass
            self._advance()
            yield Clause(term, line)

    def _declare(self, priority: int, kind: str, what: Term) -> None:
        names = items_of(what)
        for each in [what] if names is None else names:
            if kind not in ("xfx", "xfy", "yfx", "fy", "fx", "xf", "yf") or not (
                isinstance(each, Atom) and 0 <= priority <= 1200
            ):
                raise self._wrong(
                    "op/3 takes a priority from 0 to 1200, a type such as xfx, and atoms"
                )
            self.operators.add(priority, kind, each.name)

    def _term(self, most: int) -> Term:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"terms are nested more than {_DEEPEST} levels deep")
        left, priority = self._primary(most)
        left = self._infix(left, priority, most)
        self._depth -= 1
        return left

    def _infix(self, left: Term, priority: int, most: int) -> Term:
        while True:
            name = self._operator_here()
            if name is None:
                return left
            if found := self.operators.infix.get(name):
                own = found.priority
                least_left = own if found.kind[0] == "y" else own - 1
                if own <= most and priority <= least_left:
                    self._advance()
                    right = self._term(own if found.kind[2] == "y" else own - 1)
                    left, priority = Compound(name, (left, right)), own
                    continue
            if found := self.operators.postfix.get(name):
                own = found.priority
                if own <= most and priority <= (own if found.kind[0] == "y" else own - 1):
                    self._advance()
                    left, priority = Compound(name, (left,)), own
                    continue
            return left

    def _operator_here(self) -> str | None:
        token = self._now
        if token.kind == "atom" or (token.kind == "mark" and token.value in (",", "|")):
            return str(token.value)
        return None

    def _primary(self, most: int) -> tuple[Term, int]:
        token = self._now
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
                return self._named(token, most)
            case "mark" | "call":
                return self._bracketed(token), 0
            case _:
                raise self._wrong(f"expected a term, found {self._seen()}")

    def _named(self, token: Token, most: int) -> tuple[Term, int]:
        name = str(token.value)
        self._advance()
        if self._now.kind == "call":
            return Compound(name, self._arguments(")")), 0
        if name == "-" and token.kind == "atom" and self._is_number_next():
            value = cast("int | float", self._now.value)
            self._advance()
            return Number(-value), 0
        found = self.operators.prefix.get(name) if token.kind == "atom" else None
        if found and not self._ends_operand():
            own = min(found.priority, 999) if most < found.priority else found.priority
            argument = self._term(own if found.kind == "fy" else own - 1)
            return Compound(name, (argument,)), own
        atom = Atom(name)
        if token.kind == "atom" and self.operators.named(name):
            infix = self.operators.infix.get(name)
            priority = max((o.priority for o in (found, infix) if o), default=0)
            return atom, priority if priority <= most else 0
        return atom, 0

    def _is_number_next(self) -> bool:
        return self._now.kind == "number" and not self._now.before

    def _ends_operand(self) -> bool:
        """Is the operator before this an atom, because no operand follows?"""
        token = self._now
        if token.kind in ("end", "eof") or (
            token.kind == "mark" and token.value in (")", "]", "}", ",", "|")
        ):
            return True
        name = str(token.value)
        is_infix = token.kind == "atom" and name in self.operators.infix
        return is_infix and name not in self.operators.prefix and not self._tokens.opens()

    def _bracketed(self, token: Token) -> Term:
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
                raise self._wrong(f"expected a term, found {token.value!r}", token.line)

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
        found = [self._term(999)]
        while self._is_mark(","):
            self._advance()
            found.append(self._term(999))
        self._expect(closing)
        return tuple(found)

    def _is_mark(self, value: str) -> bool:
        return self._now.kind == "mark" and self._now.value == value

    def _expect(self, value: str) -> None:
        if not self._is_mark(value):
            raise self._wrong(f"expected {value}, found {self._seen()}")
        self._advance()

    def _advance(self) -> None:
        self._now = self._tokens.next()

    def _seen(self) -> str:
        match self._now.kind:
            case "eof":
                return "the end of the file"
            case "end":
                return "the end of the clause"
            case _:
                return repr(str(self._now.value)[:40])

    def _wrong(self, what: str, line: int = 0) -> BadInput:
        return BadInput(f"{self._file}:{line or self._now.line}: {what}")


class _Tokens:
    """Cuts a text into tokens."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._at, self._line = 0, 1

    def opens(self) -> bool:
        """Does a bracket come next, without white space?"""
        return self._text[self._at : self._at + 1] == "("

    def next(self) -> Token:
        start = self._at
        if space := _SPACE.match(self._text, self._at):
            self._go_to(space.end())
        before = self._at > start or start == 0
        text, at, line = self._text, self._at, self._line
        if at >= len(text):
            return Token("eof", "", line, before)
        sign = text[at]
        if sign == "." and (
            at + 1 == len(text) or text[at + 1].isspace() or text[at + 1] == "%"
        ):
            self._at += 1
            return Token("end", ".", line, before)
        if text.startswith("/*", at):
            raise self._wrong("this comment has no end: */ is missing")
        if sign in "'\"`":
            return self._quoted(sign, line, before=before)
        return self._unquoted(sign, line, before=before)

    def _unquoted(self, sign: str, line: int, *, before: bool) -> Token:
        text, at = self._text, self._at
        if found := _NUMBER.match(text, at):
            self._go_to(found.end())
            return Token("number", self._value(found[0]), line, before)
        if found := _VARIABLE.match(text, at):
            self._go_to(found.end())
            return Token("variable", found[0], line, before)
        if sign in "()[]{},|":
            self._at += 2 if text.startswith("||", at) else 1
            after_name = sign == "(" and not before
            kind = "call" if after_name else "mark"
            return Token(kind, text[at : self._at], line, before)
        if found := _WORD.match(text, at):
            self._limited(found[0])
            self._go_to(found.end())
            return Token("atom", found[0], line, before)
        raise self._wrong(f"{sign!r} is not allowed here")

    def _quoted(self, quote: str, line: int, *, before: bool) -> Token:
        pieces, text, at = list[str](), self._text, self._at + 1
        plain = re.compile(r"[^\\\n" + quote + "]+")
        while True:
            if found := plain.match(text, at):
                pieces.append(found[0])
                at = found.end()
            sign = text[at : at + 1]
            if sign == quote and text[at + 1 : at + 2] == quote:
                pieces.append(quote)
                at += 2
            elif sign == quote:
                break
            elif sign == "\\":
                piece, at = self._escape(at + 1)
                pieces.append(piece)
            else:
                raise self._wrong(f"this {quote} has no end on its line")
        value = "".join(pieces)
        self._limited(value)
        self._go_to(at + 1)
        if quote == "`":
            raise self._wrong(
                "text in backquotes is not supported: write it in double quotes"
            )
        return Token("quoted" if quote == "'" else "text", value, line, before)

    def _escape(self, at: int) -> tuple[str, int]:
        text = self._text
        if text[at : at + 1] == "\n":
            return "", at + 1
        if found := re.compile(
            r"x([0-9a-fA-F]+)\\?|([0-7]+)\\|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
        ).match(text, at):
            digits = found[1] or found[3] or found[4]
            code = int(digits, 16) if digits else int(found[2], 8)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._wrong(f"\\{found[0]} is not a character")
            return chr(code), found.end()
        sign = text[at : at + 1]
        if sign not in _ESCAPES or not sign:
            raise self._wrong(f"there is no escape \\{sign}")
        return _ESCAPES[sign], at + 1

    def _value(self, written: str) -> int | float:
        if written.startswith("0'"):
            rest = written[2:]
            if rest.startswith("\\"):
                return ord(self._escape(self._at - len(rest) + 1)[0] or "\0")
            return ord(rest[0])
        if written[:2] in ("0x", "0o", "0b"):
            return int(written, 0)
        self._limited(written, 1000)
        plain = written.replace("_", "")
        return float(plain) if "." in plain else int(plain)

    def _limited(self, value: str, most: int = _LONGEST) -> None:
        if len(value) > most:
            raise self._wrong(f"an atom, text or number has more than {most:,} characters")

    def _go_to(self, at: int) -> None:
        self._line += self._text.count("\n", self._at, at)
        self._at = at

    def _wrong(self, what: str) -> BadInput:
        return BadInput(f"{self._file}:{self._line}: {what}")


def read_terms(content: bytes, file: str) -> tuple[Clause, ...]:
    """All clauses. Raises `BadInput` with the line, also for what is no text."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}:{line}: it is not UTF-8: {error.reason}") from error
    if (at := text.find("\0")) >= 0:
        raise BadInput(f"{file}:{text.count(chr(10), 0, at) + 1}: it has a NUL character")
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
