"""Calculates an expression exactly, with bounds on every number and no `eval`.

Numbers are fractions; `0.1` is one tenth. Roots and logarithms are decimals with 50 digits, and a
result that depends on one is shown with 15 and a ≈. An expression is parsed by Python's own parser
and only the nodes named here are followed. `data` has the tool.
"""

import ast
import decimal
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from refold.errors import ToolFailed

Number: TypeAlias = Fraction | Decimal  # a Decimal is an approximation

_LONGEST = 1_000  # characters
_DEEPEST = 500  # levels of an expression
_BITS = 14_000  # of a numerator or denominator: about 4,200 digits
_DIGITS = 50  # that are calculated with
_SHOWN = 15
_EXACT = 30  # digits after the point of an exact result; more are shown as a fraction
_MOST = 3_000  # for factorial, comb and perm
_CONTEXT = decimal.Context(
    prec=_DIGITS,
    Emax=100_000,
    Emin=-100_000,
    traps=[decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow],
)
_NUMBER = re.compile(r"(?:\d[\d_]*)?\.?(?:\d[\d_]*)?(?:[eE][+-]?(\d{1,6}))?")
_PI = Decimal("3.1415926535897932384626433832795028841971693993751")


def calculated(expression: str) -> str:
    """`expression = result`. Raises `ToolFailed`."""
    text = " ".join(expression.split())
    if len(text) > _LONGEST:
        raise ToolFailed(f"An expression has at most {_LONGEST:,} characters.")
    try:
        tree = ast.parse(text, mode="eval")
        return f"{text} {_shown(_Calculation(text).value(tree.body, 0))}"
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ToolFailed(f"{text!r} cannot be calculated: {why}.") from error
    except ZeroDivisionError as error:
        raise ToolFailed(f"{text!r} divides by zero.") from error
    except decimal.DecimalException as error:
        raise ToolFailed(
            f"{text!r} has no value, or one that is too large or too small."
        ) from error


class _Calculation:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr, depth: int) -> Number:
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Name(id=name) if name in _CONSTANTS:
                return _CONSTANTS[name]()
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                pair = (self.value(left, depth + 1), self.value(right, depth + 1))
                return _bounded(_OPERATORS[type(op)](*pair))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in _FUNCTIONS
            ):
                return self._called(name, args, depth)
            case _:
                raise ValueError(_unknown(ast.get_source_segment(self._text, node) or ""))

    def _called(self, name: str, args: Sequence[ast.expr], depth: int) -> Number:
        given = list[Number]()
        for each in args:
            if isinstance(each, ast.List | ast.Tuple):
                given += [self.value(item, depth + 1) for item in each.elts]
            else:
                given.append(self.value(each, depth + 1))
        function, least, most = _FUNCTIONS[name]
        if not least <= len(given) <= most:
            many = f"{least}" if least == most else f"{least} to {most}"
            raise ValueError(f"{name} takes {many} numbers, not {len(given)}")
        return _bounded(function(given))

    def _literal(self, node: ast.Constant) -> Number:
        """The number as it is written: what Python makes of 0.1 is another one."""
        written = ast.get_source_segment(self._text, node) or ""
        if type(node.value) not in (int, float):
            raise ValueError(_unknown(written))
        if not (found := _NUMBER.fullmatch(written)):
            return _bounded(Fraction(int(written, 0)))  # 0xff
        if found[1] and int(found[1]) > _BITS // 4:
            raise ValueError(f"{written} has too many digits")
        return _bounded(Fraction(written))


def _bounded(found: Number) -> Number:
    if isinstance(found, Fraction):
        bits = max(abs(found.numerator).bit_length(), found.denominator.bit_length())
        if bits > _BITS:
            raise ValueError(f"a number in it has more than {_BITS * 3 // 10:,} digits")
    elif not found.is_finite():
        raise ValueError("it has no finite value")
    return found


def _unknown(written: str) -> str:
    names = ", ".join((*_FUNCTIONS, *_CONSTANTS))
    hint = "; write ** for a power" if "^" in written else ""
    return f"{written!r} is not known here{hint}; there are + - * / // % ** and {names}"


def _decimal(number: Number) -> Decimal:
    if isinstance(number, Decimal):
        return number
    return _CONTEXT.divide(Decimal(number.numerator), Decimal(number.denominator))


def _either(
    exact: Callable[[Fraction, Fraction], Fraction | int],
    near: Callable[[Decimal, Decimal], Decimal],
) -> Callable[[Number, Number], Number]:
    """Exactly, if both numbers are exact."""

    def operate(left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return Fraction(exact(left, right))
        return near(_decimal(left), _decimal(right))

    return operate


def _floor_divided(left: Decimal, right: Decimal) -> Decimal:
    return _CONTEXT.divide(left, right).to_integral_value(decimal.ROUND_FLOOR)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    whole = _floor_divided(left, right)
    return _CONTEXT.subtract(left, _CONTEXT.multiply(right, whole))


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            size = max(abs(base.numerator), base.denominator).bit_length() - 1
            if size * abs(exponent.numerator) > _BITS:
                raise ValueError(f"a number in it has more than {_BITS * 3 // 10:,} digits")
            return base**exponent.numerator
        if exponent == Fraction(1, 2):
            return _root([base])
    return _CONTEXT.power(_decimal(base), _decimal(exponent))


def _root(given: Sequence[Number]) -> Number:
    (number,) = given
    if isinstance(number, Fraction) and number >= 0:
        top, below = math.isqrt(number.numerator), math.isqrt(number.denominator)
        if (top * top, below * below) == (number.numerator, number.denominator):
            return Fraction(top, below)
    return _CONTEXT.sqrt(_decimal(number))


def _logarithm(given: Sequence[Number]) -> Number:
    """The natural one, or to a base."""
    found = _CONTEXT.ln(_decimal(given[0]))
    if len(given) == 1:
        return found
    return _CONTEXT.divide(found, _CONTEXT.ln(_decimal(given[1])))


def _rounded(given: Sequence[Number]) -> Number:
    digits = _whole(given[1], "round", 4_000) if len(given) > 1 else 0
    if isinstance(given[0], Fraction):
        return Fraction(round(given[0], digits))
    return _CONTEXT.create_decimal(round(given[0], min(digits, _DIGITS)))


def _whole(number: Number, name: str, most: int) -> int:
    if number != int(number) or not -most <= number <= most:
        raise ValueError(f"{name} takes whole numbers up to {most:,}")
    return int(number)


def _counted(name: str, count: Callable[..., int]) -> Callable[[Sequence[Number]], Number]:
    def counted(given: Sequence[Number]) -> Number:
        return Fraction(count(*(_whole(each, name, _MOST) for each in given)))

    return counted


def _divisor(given: Sequence[Number]) -> Number:
    return Fraction(math.gcd(*(_integer(each) for each in given)))


def _multiple(given: Sequence[Number]) -> Number:
    found = 1
    for each in given:
        found = math.lcm(found, _integer(each))
        _bounded(Fraction(found))
    return Fraction(found)


def _integer(number: Number) -> int:
    if number != int(number):
        raise ValueError("gcd and lcm take whole numbers")
    return int(number)


def _sum(given: Sequence[Number]) -> Number:
    found: Number = Fraction(0)
    for each in given:
        found = _bounded(_OPERATORS[ast.Add](found, each))
    return found


def _by_float(function: Callable[[float], float]) -> Callable[[Sequence[Number]], Number]:
    def calculate(given: Sequence[Number]) -> Number:
        try:
            return Decimal(repr(function(float(given[0]))))
        except OverflowError as error:
            raise ValueError("a number is too large for this function") from error

    return calculate


_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = (
    MappingProxyType({
        ast.Add: _either(lambda a, b: a + b, _CONTEXT.add),
        ast.Sub: _either(lambda a, b: a - b, _CONTEXT.subtract),
        ast.Mult: _either(lambda a, b: a * b, _CONTEXT.multiply),
        ast.Div: _either(lambda a, b: a / b, _CONTEXT.divide),
        ast.FloorDiv: _either(lambda a, b: a // b, _floor_divided),
        ast.Mod: _either(lambda a, b: a % b, _remainder),
        ast.Pow: _power,
    })
)  # fmt: skip
_MANY = 1_000
# Each with the least and the most numbers that it takes.
_FUNCTIONS: Mapping[str, tuple[Callable[[Sequence[Number]], Number], int, int]] = (
    MappingProxyType({
        "sqrt": (_root, 1, 1),
        "log": (_logarithm, 1, 2),
        "log10": (lambda g: _CONTEXT.log10(_decimal(g[0])), 1, 1),
        "exp": (lambda g: _CONTEXT.exp(_decimal(g[0])), 1, 1),
        "sin": (_by_float(math.sin), 1, 1),
        "cos": (_by_float(math.cos), 1, 1),
        "tan": (_by_float(math.tan), 1, 1),
        "atan": (_by_float(math.atan), 1, 1),
        "abs": (lambda g: abs(g[0]), 1, 1),
        "floor": (lambda g: Fraction(math.floor(g[0])), 1, 1),
        "ceil": (lambda g: Fraction(math.ceil(g[0])), 1, 1),
        "round": (_rounded, 1, 2),
        "factorial": (_counted("factorial", math.factorial), 1, 1),
        "comb": (_counted("comb", math.comb), 2, 2),
        "perm": (_counted("perm", math.perm), 2, 2),
        "gcd": (_divisor, 1, _MANY),
        "lcm": (_multiple, 1, _MANY),
        "sum": (_sum, 0, _MANY),
        "min": (min, 1, _MANY),
        "max": (max, 1, _MANY),
    })
)  # fmt: skip
_CONSTANTS: Mapping[str, Callable[[], Number]] = MappingProxyType({
    "pi": lambda: _PI,
    "e": lambda: _CONTEXT.exp(Decimal(1)),
})  # fmt: skip


def _shown(number: Number) -> str:
    if isinstance(number, Decimal):
        return f"≈ {_near(number)}"
    if number.denominator == 1:
        return f"= {number.numerator}"
    if (exact := _terminating(number)) is not None:
        return f"= {exact}"
    return f"= {number.numerator}/{number.denominator} ≈ {_near(_decimal(number))}"


def _near(number: Decimal) -> str:
    short = decimal.Context(prec=_SHOWN).plus(number)
    plain = short.normalize(_CONTEXT)
    return f"{plain:f}" if -10 < plain.adjusted() < 21 else f"{plain}"


def _terminating(number: Fraction) -> str | None:
    """The decimal that is exactly this number, if it has one that is short."""
    for digits in range(1, _EXACT + 1):
        if not 10**digits % number.denominator:
            whole = abs(number.numerator) * 10**digits // number.denominator
            text = str(whole).rjust(digits + 1, "0")
            sign = "-" if number < 0 else ""
            return f"{sign}{text[:-digits]}.{text[-digits:]}"
    return None
