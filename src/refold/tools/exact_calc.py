"""Calculates an expression exactly, with limits on every number and without `eval`.

Numbers are fractions; `0.1` is one tenth. Roots and logarithms are decimals with 50 digits, and
a result that depends on one is shown with 15 digits and a ≈. Python's parser parses the
expression, and only the kinds of nodes named here are evaluated. `data` has the tool.
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
from refold.values.python_syntax import parse_expression

Number: TypeAlias = Fraction | Decimal  # a Decimal is an approximation

_MAX_EXPRESSION_CHARS = 1_000
_MAX_DEPTH = 500  # levels of an expression
_MAX_BITS = 14_000  # in a numerator or denominator: about 4,200 digits
_PRECISION_DIGITS = 50  # for intermediate results
_SHOWN_DIGITS = 15
# Numbers with exponents in this range are shown without an exponent.
_MIN_PLAIN_EXPONENT, _MAX_PLAIN_EXPONENT = -9, 20
_MAX_EXPONENT = _MAX_BITS // 4  # 10**n has fewer than 4 * n bits
_MAX_DECIMAL_PLACES = 30  # in an exact result; longer ones are shown as a fraction
_MAX_COUNT = 3_000  # for factorial, comb and perm
_DECIMAL_CONTEXT = decimal.Context(
    prec=_PRECISION_DIGITS,
    Emax=100_000,
    Emin=-100_000,
    traps=[decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow],
)
_NUMBER_PATTERN = re.compile(r"(?:\d[\d_]*)?\.?(?:\d[\d_]*)?(?:[eE][+-]?(\d{1,6}))?")
_PI_VALUE = Decimal("3.1415926535897932384626433832795028841971693993751")


def calculate(expression: str) -> str:
    """Return `expression = result`. Raises `ToolFailed`."""
    text = " ".join(expression.split())
    if len(text) > _MAX_EXPRESSION_CHARS:
        raise ToolFailed(f"An expression has at most {_MAX_EXPRESSION_CHARS:,} characters.")
    try:
        tree = parse_expression(text)
        number = _Calculation(text).value(tree.body, depth=0)
        return f"{text} {_result_text(number)}"
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
        """Return the value of an expression. Raises `ValueError` for other syntax."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Name(id=name) if name in _CONSTANT_TABLE:
                return _CONSTANT_TABLE[name]()
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right) if (
                type(op) in _OPERATOR_FUNCTIONS
            ):
                operate = _OPERATOR_FUNCTIONS[type(op)]
                operands = (self.value(left, depth + 1), self.value(right, depth + 1))
                return _check_bounds(operate(*operands))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in _FUNCTION_TABLE
            ):
                return self._call(name, args, depth)
            case _:
                source = ast.get_source_segment(self._text, node) or ""
                raise ValueError(_unknown_name(source))

    def _call(self, name: str, args: Sequence[ast.expr], depth: int) -> Number:
        """Return the value of a function. Items of a list count as separate arguments."""
        numbers = list[Number]()
        for arg in args:
            if isinstance(arg, ast.List | ast.Tuple):
                numbers += [self.value(item, depth + 1) for item in arg.elts]
            else:
                numbers.append(self.value(arg, depth + 1))
        function, min_count, max_count = _FUNCTION_TABLE[name]
        if not min_count <= len(numbers) <= max_count:
            counts = (
                f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
            )
            raise ValueError(f"{name} takes {counts} numbers, not {len(numbers)}")
        return _check_bounds(function(numbers))

    def _literal(self, node: ast.Constant) -> Number:
        """Return the exact value of a number from its text: the float 0.1 is inexact."""
        written = ast.get_source_segment(self._text, node) or ""
        if type(node.value) not in (int, float):
            raise ValueError(_unknown_name(written))
        match = _NUMBER_PATTERN.fullmatch(written)
        if not match:
            return _check_bounds(Fraction(int(written, 0)))  # for example 0xff
        # The exponent is checked first, because a large one would fill the memory.
        exponent = match[1]
        if exponent and int(exponent) > _MAX_EXPONENT:
            raise ValueError(f"{written} has too many digits")
        return _check_bounds(Fraction(written))


def _check_bounds(number: Number) -> Number:
    """Return `number`. Raises `ValueError` if it has too many digits or is not finite."""
    if isinstance(number, Fraction):
        bits = max(abs(number.numerator).bit_length(), number.denominator.bit_length())
        if bits > _MAX_BITS:
            max_digits = _MAX_BITS * 3 // 10  # a decimal digit has about 10/3 bits
            raise ValueError(f"a number in it has more than {max_digits:,} digits")
    elif not number.is_finite():
        raise ValueError("it has no finite value")
    return number


def _unknown_name(name: str) -> str:
    names = ", ".join((*_FUNCTION_TABLE, *_CONSTANT_TABLE))
    hint = "; write ** for a power" if "^" in name else ""
    return f"{name!r} is unknown{hint}; there are + - * / // % ** and {names}"


def _decimal(number: Number) -> Decimal:
    if isinstance(number, Decimal):
        return number
    return _DECIMAL_CONTEXT.divide(Decimal(number.numerator), Decimal(number.denominator))


def _compute_exactly(
    exact: Callable[[Fraction, Fraction], Fraction | int],
    approximate: Callable[[Decimal, Decimal], Decimal],
) -> Callable[[Number, Number], Number]:
    """Return a function that uses `exact` for two exact numbers, else `approximate`."""

    def operate(left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return Fraction(exact(left, right))
        return approximate(_decimal(left), _decimal(right))

    return operate


def _floor_divide(left: Decimal, right: Decimal) -> Decimal:
    return _DECIMAL_CONTEXT.divide(left, right).to_integral_value(decimal.ROUND_FLOOR)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    whole = _floor_divide(left, right)
    return _DECIMAL_CONTEXT.subtract(left, _DECIMAL_CONTEXT.multiply(right, whole))


def _power(base: Number, exponent: Number) -> Number:
    """Return a power. It is exact for an integer exponent, and for some square roots."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            size = max(abs(base.numerator), base.denominator).bit_length() - 1
            if size * abs(exponent.numerator) > _MAX_BITS:
                raise ValueError(
                    f"a number in it has more than {_MAX_BITS * 3 // 10:,} digits"
                )
            return base**exponent.numerator
        if exponent == Fraction(1, 2):
            return _root([base])
    return _DECIMAL_CONTEXT.power(_decimal(base), _decimal(exponent))


def _root(numbers: Sequence[Number]) -> Number:
    """Return the square root of the only number, exact if the root is a fraction."""
    (number,) = numbers
    if isinstance(number, Fraction) and number >= 0:
        root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
        if root * root == number:
            return root
    return _DECIMAL_CONTEXT.sqrt(_decimal(number))


def _logarithm(numbers: Sequence[Number]) -> Number:
    """Return the logarithm of the first number, to the base of the second if there is one."""
    logarithm = _DECIMAL_CONTEXT.ln(_decimal(numbers[0]))
    if len(numbers) == 1:
        return logarithm
    base_logarithm = _DECIMAL_CONTEXT.ln(_decimal(numbers[1]))
    return _DECIMAL_CONTEXT.divide(logarithm, base_logarithm)


def _round(numbers: Sequence[Number]) -> Number:
    """Return the first number, rounded to the second number of decimals, 0 by default."""
    number = numbers[0]
    decimals = (
        _bounded_integer(numbers[1], "round", max_value=4_000) if len(numbers) > 1 else 0
    )
    if isinstance(number, Fraction):
        return Fraction(round(number, decimals))
    return _DECIMAL_CONTEXT.create_decimal(round(number, min(decimals, _PRECISION_DIGITS)))


def _bounded_integer(number: Number, name: str, max_value: int) -> int:
    """Return a whole number as an integer. Raises `ValueError` if the number is not whole, or
    too large.

    `name` is that of the function, for the message.
    """
    if number != int(number) or not -max_value <= number <= max_value:
        raise ValueError(f"{name} takes whole numbers up to {max_value:,}")
    return int(number)


def _count_function(
    name: str, count: Callable[..., int]
) -> Callable[[Sequence[Number]], Number]:
    """Return a calculation that calls `count` with integers of limited size."""

    def calculate(numbers: Sequence[Number]) -> Number:
        integers = (_bounded_integer(number, name, _MAX_COUNT) for number in numbers)
        return Fraction(count(*integers))

    return calculate


def _greatest_common_divisor(numbers: Sequence[Number]) -> Number:
    return Fraction(math.gcd(*(_integer(number) for number in numbers)))


def _least_common_multiple(numbers: Sequence[Number]) -> Number:
    """Return the least common multiple of integers. Each step checks the size of the result."""
    multiple = 1
    for number in numbers:
        multiple = math.lcm(multiple, _integer(number))
        _check_bounds(Fraction(multiple))
    return Fraction(multiple)


def _integer(number: Number) -> int:
    """Return a whole number as an integer. Raises `ValueError` for other numbers."""
    if number != int(number):
        raise ValueError("gcd and lcm take whole numbers")
    return int(number)


def _sum(numbers: Sequence[Number]) -> Number:
    """Return the sum. Each step checks the size of the result."""
    add = _OPERATOR_FUNCTIONS[ast.Add]
    total: Number = Fraction(0)
    for number in numbers:
        total = _check_bounds(add(total, number))
    return total


def _float_function(
    function: Callable[[float], float],
) -> Callable[[Sequence[Number]], Number]:
    """Return a calculation that calls `function` with the first number as a float."""

    def calculate(numbers: Sequence[Number]) -> Number:
        try:
            return Decimal(repr(function(float(numbers[0]))))
        except OverflowError as error:
            raise ValueError("a number is too large for this function") from error

    return calculate


_OPERATOR_FUNCTIONS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = (
    MappingProxyType({
        ast.Add: _compute_exactly(lambda a, b: a + b, _DECIMAL_CONTEXT.add),
        ast.Sub: _compute_exactly(lambda a, b: a - b, _DECIMAL_CONTEXT.subtract),
        ast.Mult: _compute_exactly(lambda a, b: a * b, _DECIMAL_CONTEXT.multiply),
        ast.Div: _compute_exactly(lambda a, b: a / b, _DECIMAL_CONTEXT.divide),
        ast.FloorDiv: _compute_exactly(lambda a, b: a // b, _floor_divide),
        ast.Mod: _compute_exactly(lambda a, b: a % b, _remainder),
        ast.Pow: _power,
    })
)  # fmt: skip
_MAX_ARGUMENTS = 1_000
# Each function with its minimum and maximum number of arguments.
_FUNCTION_TABLE: Mapping[str, tuple[Callable[[Sequence[Number]], Number], int, int]] = (
    MappingProxyType({
        "sqrt": (_root, 1, 1),
        "log": (_logarithm, 1, 2),
        "log10": (lambda g: _DECIMAL_CONTEXT.log10(_decimal(g[0])), 1, 1),
        "exp": (lambda g: _DECIMAL_CONTEXT.exp(_decimal(g[0])), 1, 1),
        "sin": (_float_function(math.sin), 1, 1),
        "cos": (_float_function(math.cos), 1, 1),
        "tan": (_float_function(math.tan), 1, 1),
        "atan": (_float_function(math.atan), 1, 1),
        "abs": (lambda g: abs(g[0]), 1, 1),
        "floor": (lambda g: Fraction(math.floor(g[0])), 1, 1),
        "ceil": (lambda g: Fraction(math.ceil(g[0])), 1, 1),
        "round": (_round, 1, 2),
        "factorial": (_count_function("factorial", math.factorial), 1, 1),
        "comb": (_count_function("comb", math.comb), 2, 2),
        "perm": (_count_function("perm", math.perm), 2, 2),
        "gcd": (_greatest_common_divisor, 1, _MAX_ARGUMENTS),
        "lcm": (_least_common_multiple, 1, _MAX_ARGUMENTS),
        "sum": (_sum, 0, _MAX_ARGUMENTS),
        "min": (min, 1, _MAX_ARGUMENTS),
        "max": (max, 1, _MAX_ARGUMENTS),
    })
)  # fmt: skip
_CONSTANT_TABLE: Mapping[str, Callable[[], Number]] = MappingProxyType({
    "pi": lambda: _PI_VALUE,
    "e": lambda: _DECIMAL_CONTEXT.exp(Decimal(1)),
})  # fmt: skip


def _result_text(number: Number) -> str:
    """Return a result after "=" if it is exact, or after "≈" if it was rounded."""
    if isinstance(number, Decimal):
        return f"≈ {_decimal_text(number)}"
    if number.denominator == 1:
        return f"= {number.numerator}"
    if (exact := _short_decimal(number)) is not None:
        return f"= {exact}"
    return f"= {number.numerator}/{number.denominator} ≈ {_decimal_text(_decimal(number))}"


def _decimal_text(number: Decimal) -> str:
    """Return a rounded number as text; a very small or large number in scientific notation."""
    rounded = decimal.Context(prec=_SHOWN_DIGITS).plus(number)
    without_end_zeros = rounded.normalize(_DECIMAL_CONTEXT)
    first_digit_exponent = without_end_zeros.adjusted()
    if _MIN_PLAIN_EXPONENT <= first_digit_exponent <= _MAX_PLAIN_EXPONENT:
        return f"{without_end_zeros:f}"
    return f"{without_end_zeros}"


def _short_decimal(number: Fraction) -> str | None:
    """Return the decimal that equals this number, or None if it has too many digits."""
    for places in range(1, _MAX_DECIMAL_PLACES + 1):
        scale = 10**places
        if scale % number.denominator:
            continue  # the number has more decimal places
        digits = str(abs(number.numerator) * scale // number.denominator)
        digits = digits.rjust(places + 1, "0")  # at least one digit before the point
        sign = "-" if number < 0 else ""
        return f"{sign}{digits[:-places]}.{digits[-places:]}"
    return None
