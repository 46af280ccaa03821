"""`calc` is exact and bounded; `json_query` answers from files, blobs and text."""

import ast
import json
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.data import calc, json_query
from refold.tools.exact_calc import calculate
from refold.values.tools import Effect


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "= 0.3"),
        ("1/3 + 1/6", "= 0.5"),
        ("2/3", "= 2/3 ≈ 0.666666666666667"),
        ("19.99 * 3 * 1.19", "= 71.3643"),
        ("-7 // 2", "= -4"),
        ("-7.5 % 2", "= 0.5"),
        ("2 ** -3", "= 0.125"),
        ("2**100", "= 1267650600228229401496703205376"),
        ("-2**2", "= -4"),
        ("sqrt(16/9)", "= 4/3 ≈ 1.33333333333333"),
        ("sqrt(2)", "≈ 1.4142135623731"),
        ("2**0.5 * 2**0.5", "≈ 2"),
        ("log(8, 2)", "≈ 3"),
        ("log10(1000)", "≈ 3"),
        ("exp(1) - e", "≈ 0"),
        ("pi", "≈ 3.14159265358979"),
        ("sin(pi / 6)", "≈ 0.5"),
        ("pi % 3", "≈ 0.141592653589793"),
        ("round(2/3, 3)", "= 0.667"),
        ("round(2.5)", "= 2"),
        ("floor(-1.5) + ceil(1.2)", "= 0"),
        ("factorial(20)", "= 2432902008176640000"),
        ("comb(52, 5)", "= 2598960"),
        ("perm(5, 2)", "= 20"),
        ("gcd(12, 18) + lcm(4, 6)", "= 18"),
        ("sum([1, 2.5], 3) + max(1, 2) - min(1, 2)", "= 7.5"),
        ("0xff + 1_000", "= 1255"),
        ("abs(-1e-5)", "= 0.00001"),
        ("1+" * 400 + "1", "= 401"),
    ],
)
def test_a_calc_result_is_exact_or_marked_as_approximate(
    expression: str, result: str
) -> None:
    assert calculate(expression) == f"{expression} {result}"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("9**9**9", "more than 4,200 digits"),
        ("10**4000 * 10**4000", "more than 4,200 digits"),
        ("1e999999", "too many digits"),
        ("factorial(100000)", "whole numbers up to 3,000"),
        ("factorial(2.5)", "whole numbers up to 3,000"),
        ("exp(10**9)", "too large or too small"),
        ("10 ** (10**9 + 0.5)", "too large or too small"),
        ("1/0", "divides by zero"),
        ("log(0)", "no finite value"),
        ("sqrt(-1)", "has no value"),
        ("2^3", "write ** for a power"),
        ("(" * 300 + "1" + ")" * 300, "cannot be calculated"),
        ("-" * 990 + "1", "cannot be calculated"),
        ("1+" * 501 + "1", "at most 1,000 characters"),
        ("", "cannot be calculated"),
        ("min()", "min takes 1 to 1000 numbers, not 0"),
        ("sqrt(1, 2)", "sqrt takes 1 numbers, not 2"),
    ],
)
def test_calc_refuses_expressions_too_large_or_without_a_value(
    expression: str, why: str
) -> None:
    with pytest.raises(ToolFailed, match=re.escape(why)):
        calculate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('id')", "().__class__", "open('/etc/passwd')", "[x for x in (1,)]",
        "(lambda: 1)()", "'a' * 9", "True", "1j", "1 if 1 else 2", "1 < 2", "f'{1}'", "x := 1",
        "sqrt.__globals__", "sum(*[1])", "round(1, ndigits=2)", "~1", "1 << 9", "1; 2", "eval(1)",
    ],
)  # fmt: skip
def test_calc_refuses_expressions_that_do_more_than_calculate(expression: str) -> None:
    with pytest.raises(ToolFailed):
        calculate(expression)


NUMBERS = st.fractions(-1000, 1000, max_denominator=1000).map(
    lambda n: f"({n.numerator}/{n.denominator})"
)
EXPRESSIONS = st.recursive(
    NUMBERS, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join)
)


def sum_fractions(node: Any) -> Fraction:
    match node:
        case ast.Constant(value=value):
            return Fraction(value)
        case ast.UnaryOp(operand=operand):
            return -sum_fractions(operand)
        case _:
            left, right = sum_fractions(node.left), sum_fractions(node.right)
            return {
                ast.Add: lambda: left + right,
                ast.Sub: lambda: left - right,
                ast.Mult: lambda: left * right,
                ast.Div: lambda: left / right,
            }[type(node.op)]()


@pytest.mark.slow
@given(EXPRESSIONS)
def test_calc_gives_the_same_values_as_exact_fractions(expression: str) -> None:
    if len(expression) > 1_000:
        return
    try:
        expected = sum_fractions(ast.parse(expression, mode="eval").body)
    except ZeroDivisionError:
        with pytest.raises(ToolFailed, match="divides by zero"):
            calculate(expression)
        return

    shown_value = calculate(expression).removeprefix(f"{expression} = ").partition(" ≈")[0]

    assert (
        Fraction(shown_value) if "/" in shown_value else Fraction(Decimal(shown_value))
    ) == expected


PEOPLE = {"people": [{"name": "Ann", "age": 40}, {"name": "Bö", "age": 20}]}


def query_json(place: ToolDirectory, **arguments: object) -> str:
    return anyio.run(place.use, json_query, arguments).text


@pytest.mark.parametrize(
    "where", [{"path": "people.json"}, {"path": "blob:sha"}, {"json": json.dumps(PEOPLE)}]
)
def test_json_query_reads_files_blobs_and_text_alike(
    place: ToolDirectory, where: dict[str, object]
) -> None:
    (place.directory / "people.json").write_text(json.dumps(PEOPLE))
    place.blobs.kept["sha"] = json.dumps(PEOPLE).encode()

    text = query_json(place, expression="people[?age < `30`].name", **where)

    assert text == '[\n "Bö"\n]'


def test_json_query_reads_json_lines_as_a_list(place: ToolDirectory) -> None:
    (place.directory / "log.jsonl").write_text('\ufeff{"a": 1}\n\n{"a": 2}\n')

    assert query_json(place, path="log.jsonl", expression="sum([].a)") == "3"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"expression": "a"}, "Give either a path or the json itself."),
        ({"expression": "a", "json": "{}", "path": "x"}, "Give either a path or the json"),
        (
            {"expression": "a[", "json": "{}"},
            "the json cannot be queried: the expression 'a[' is",
        ),
        ({"expression": "nope(a)", "json": "{}"}, "Unknown function: nope()"),
        ({"expression": "a", "json": "{"}, "the json cannot be queried: it is not JSON"),
        ({"expression": "a", "path": "none.json"}, "none.json"),
        ({"expression": "a", "path": "blob:none"}, "There is no 'blob:none'"),
        ({"expression": "a" * 1_001, "json": "{}"}, "at most 1,000 characters"),
    ],
)
def test_json_query_reports_invalid_input(
    place: ToolDirectory, arguments: dict[str, object], why: str
) -> None:
    with pytest.raises(ToolFailed, match=re.escape(why)):
        query_json(place, **arguments)


@pytest.mark.slow
def test_json_query_truncates_a_huge_result(place: ToolDirectory) -> None:
    doubling = "|".join(["[@, @]"] * 60)

    text = query_json(place, json="1", expression=doubling)

    assert text.endswith("(Only the first 2,000,000 characters of the result are here.)")


@pytest.mark.slow
def test_json_query_stops_an_expression_that_doubles_a_list_endlessly(
    place: ToolDirectory,
) -> None:
    doubling = "|".join(["[@, @][]"] * 60)

    with pytest.raises(ToolFailed, match="make the expression smaller"):
        query_json(place, json="[1]", expression=doubling)


def test_calc_and_json_query_are_read_only() -> None:
    assert (calc.effect, json_query.effect) == (Effect.LOOK, Effect.LOOK)
