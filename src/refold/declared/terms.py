"""Reads and writes Prolog terms as ISO 13211-1 defines them, for files of facts.

The parser supports operators (also `:- op`), quoted atoms, strings, escapes, numbers, lists
with tails, curly terms and comments. Nothing is executed: a clause is data. `term_tokens`
splits the text into tokens, and `facts` interprets the terms.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from refold.declared.term_tokens import Token, Tokens
from refold.errors import BadInput

_MAX_DEPTH = 200
_MAX_FILE_CHARS = 4_000_000  # of a file


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
    """A compound term: a name with arguments.

    A list is `'[|]'(Head, Tail)`, and its last tail is `[]`.
    """

    name: str
    arguments: tuple["Term", ...]


Term: TypeAlias = Atom | QuotedText | Number | Variable | Compound
EMPTY, PAIR = Atom("[]"), "[|]"  # the empty list, and the name of a list's compounds


class Clause(Struct, frozen=True):
    term: Term
    line: int


# How an operator stands to its operands: f is the operator, y is an operand of at most its
# priority, x is an operand of a lower priority.
Kind: TypeAlias = Literal["xfx", "xfy", "yfx", "fy", "fx", "xf", "yf"]


class Operator(NamedTuple):
    priority: int
    kind: Kind


class Operators:
    """The operators of one file: the standard ones, and those that the file declares."""

    def __init__(self) -> None:
        self.prefix = dict[str, Operator]()
        self.infix = dict[str, Operator]()
        self.postfix = dict[str, Operator]()
        for priority, kind, names in _STANDARD_OPERATORS:
            for name in names.split():
                self.add(priority, kind, name)

    def add(self, priority: int, kind: Kind, name: str) -> None:
        """Add an operator, or remove it if the priority is 0."""
        if len(kind) == 3:  # an operand on both sides, as in xfx
            table = self.infix
        else:
            table = self.prefix if kind.startswith("f") else self.postfix
        if priority:
            table[name] = Operator(priority, kind)
        else:
            table.pop(name, None)

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


class TermReader:
    """Reads the clauses of a text one after the other. Raises `BadInput` with the line."""

    def __init__(self, text: str, file: str) -> None:
        self._file, self.operators = file, Operators()
        if len(text) > _MAX_FILE_CHARS:
            raise BadInput(f"{file} has more than {_MAX_FILE_CHARS:,} characters")
        self._tokens = Tokens(text, file)
        self._token = self._tokens.next()
        self._depth = 0

    def clauses(self) -> Iterator[Clause]:
        """Yield each clause.

        An operator that a clause declares is known from the next clause on.
        """
        while self._token.kind != "eof":
            line = self._token.line
            term = self._term(1200)
            if self._token.kind != "end":
                raise self._error(
                    f"expected . at the end of a clause, found {self._describe_token()}"
                )
            match term:  # evaluated before the next token is read with the new operator
                case Compound(":-", (Compound("op", (Number(int(p)), Atom(kind), ops)),)):
                    self._declare(p, kind, ops)
                case _:
                    pass
            self._advance()
            yield Clause(term, line)

    def _declare(self, priority: int, kind: str, operators: Term) -> None:
        """Obey a directive `:- op(Priority, Kind, Operators)`: add these operators.

        `operators` is one name or a list of names. The priority 0 removes an operator.
        """
        listed = items_of(operators)
        operator_terms = [operators] if listed is None else listed
        for operator in operator_terms:
            is_kind = kind in ("xfx", "xfy", "yfx", "fy", "fx", "xf", "yf")
            is_atom = isinstance(operator, Atom)
            if not (is_kind and is_atom and 0 <= priority <= 1200):
                raise self._error(
                    "op/3 takes a priority from 0 to 1200, a type such as xfx, and atoms"
                )
            self.operators.add(priority, kind, operator.name)

    def _term(self, limit: int) -> Term:
        """Read a term whose priority is at most `limit`."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"terms are nested more than {_MAX_DEPTH} levels deep")
        term, priority = self._primary(limit)
        term = self._extend(term, priority, limit)
        self._depth -= 1
        return term

    def _extend(self, left: Term, priority: int, limit: int) -> Term:
        """Read the infix and postfix operators after `left`, and return the resulting term."""
        while True:
            name = self._operator_here()
            if name is None:
                return left
            infix = self.operators.infix.get(name)
            postfix = self.operators.postfix.get(name)
            if infix and _may_follow(infix, priority, limit):
                self._advance()
                right = self._term(_operand_limit(infix, infix.kind[2]))
                left, priority = Compound(name, (left, right)), infix.priority
            elif postfix and _may_follow(postfix, priority, limit):
                self._advance()
                left, priority = Compound(name, (left,)), postfix.priority
            else:
                return left

    def _operator_here(self) -> str | None:
        """Return the current token if it may be an infix or postfix operator, else None."""
        token = self._token
        if token.kind == "atom" or (token.kind == "mark" and token.value in (",", "|")):
            return str(token.value)
        return None

    def _primary(self, limit: int) -> tuple[Term, int]:
        """Read a term without the infix and postfix operators after it.

        Return the term and its priority.
        """
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
        """Read a term that begins with a name: an atom, a compound term, or a prefix operator.

        Return the term and its priority.
        """
        name = str(token.value)
        self._advance()
        if self._token.kind == "call":
            return Compound(name, self._arguments()), 0
        if name == "-" and token.kind == "atom" and self._is_number_next():
            value = cast("int | float", self._token.value)
            self._advance()
            return Number(-value), 0
        prefix = self.operators.prefix.get(name) if token.kind == "atom" else None
        if prefix and not self._is_operand_missing():
            if limit < prefix.priority:  # as an argument, such as [dynamic a]
                prefix = prefix._replace(priority=min(prefix.priority, 999))
            argument = self._term(_operand_limit(prefix, prefix.kind[1]))
            return Compound(name, (argument,)), prefix.priority
        atom = Atom(name)
        if token.kind != "atom" or not self.operators.has(name):
            return atom, 0
        infix = self.operators.infix.get(name)
        priority = max((o.priority for o in (prefix, infix) if o), default=0)
        return atom, (priority if priority <= limit else 0)

    def _is_number_next(self) -> bool:
        return self._token.kind == "number" and not self._token.after_space

    def _is_operand_missing(self) -> bool:
        """Return whether no operand follows an operator, so that the operator is an atom."""
        token = self._token
        if token.kind in ("end", "eof"):
            return True
        if token.kind == "mark" and token.value in (")", "]", "}", ",", "|"):
            return True
        name = str(token.value)
        is_infix = token.kind == "atom" and name in self.operators.infix
        return is_infix and name not in self.operators.prefix and not self._tokens.opens()

    def _term_in_brackets(self, token: Token) -> Term:
        """Read a term in round, square or curly brackets."""
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
        """Read the terms of a list after its "[", with a tail after "|" if it has one."""
        items = [self._term(999)]  # below 1000, the priority of "," as an operator
        while self._is_mark(","):
            self._advance()
            items.append(self._term(999))
        tail: Term = EMPTY
        if self._is_mark("|"):
            self._advance()
            tail = self._term(999)
        self._expect("]")
        return list_of(items, tail)

    def _arguments(self) -> tuple[Term, ...]:
        """Read the arguments of a compound term, from "(" to ")"."""
        self._advance()
        arguments = [self._term(999)]  # below 1000, the priority of "," as an operator
        while self._is_mark(","):
            self._advance()
            arguments.append(self._term(999))
        self._expect(")")
        return tuple(arguments)

    def _is_mark(self, value: str) -> bool:
        return self._token.kind == "mark" and self._token.value == value

    def _expect(self, value: str) -> None:
        """Advance if the token is this mark. Raises an error otherwise."""
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


def _may_follow(operator: Operator, priority: int, limit: int) -> bool:
    """Return whether an infix or postfix operator may follow a term of this priority.

    `limit` is the highest priority of the whole term.
    """
    return operator.priority <= limit and priority <= _operand_limit(
        operator, operator.kind[0]
    )


def _operand_limit(operator: Operator, letter: str) -> int:
    """Return the highest priority that an operand may have.

    `letter` stands for the operand in the operator's kind: "x" or "y", as in "xfy".
    """
    return operator.priority if letter == "y" else operator.priority - 1


def read_terms(content: bytes, file: str) -> tuple[Clause, ...]:
    """Parse all clauses of a file. Raises `BadInput` with the line, also for invalid UTF-8."""
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
    """Return a Prolog list with these items, followed by `tail`."""
    for item in reversed(items):
        tail = Compound(PAIR, (item, tail))
    return tail


def items_of(term: Term) -> list[Term] | None:
    """Return the items of a list that ends in `[]`; None for any other term."""
    items = list[Term]()
    while isinstance(term, Compound) and term.name == PAIR and len(term.arguments) == 2:
        items.append(term.arguments[0])
        term = term.arguments[1]
    return items if term == EMPTY else None


def term_text(term: Term) -> str:
    """Return a term as Prolog text without operators."""
    match term:
        case Atom(name):
            return _atom_text(name)
        case QuotedText(value):
            return _in_quotes(value, '"')
        case Number(value):
            return repr(value)
        case Variable(name):
            return name
        case Compound(name, arguments) if name == PAIR and len(arguments) == 2:
            return _list_text(term)
        case Compound(name, arguments):
            return f"{_atom_text(name)}({', '.join(map(term_text, arguments))})"


def _list_text(term: Term) -> str:
    """Return a list as Prolog text, like [a, b|Tail]."""
    parts = list[str]()
    while isinstance(term, Compound) and term.name == PAIR and len(term.arguments) == 2:
        parts.append(term_text(term.arguments[0]))
        term = term.arguments[1]
    tail = "" if term == EMPTY else f"|{term_text(term)}"
    return f"[{', '.join(parts)}{tail}]"


def _atom_text(name: str) -> str:
    """Return an atom as Prolog text, with quotes if it needs them."""
    if re.fullmatch(r"[a-z][a-zA-Z0-9_]*|\[\]|\{\}", name):
        return name
    return _in_quotes(name, "'")


def _in_quotes(value: str, quote: str) -> str:
    """Return a text in these quotes, with Prolog's escapes."""
    pieces = list[str]()
    for character in value:
        if character in (quote, "\\"):
            pieces.append(f"\\{character}")
        elif character.isprintable():
            pieces.append(character)
        else:
            pieces.append(f"\\x{ord(character):x}\\")
    return f"{quote}{''.join(pieces)}{quote}"
