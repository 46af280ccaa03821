"""Python source is parsed in several threads, also while the garbage collector runs in one of them."""

import ast
import gc
from collections.abc import Callable, Generator
from contextlib import suppress
from threading import Event, Thread

import pytest

from refold.values.python_syntax import parse_expression, parse_module

SOURCE = "def f(x):\n    return [a + 1 for a in x if (a, {'b': [a]})]\n" * 50


class Garbage:
    """Its finalizer, which runs in the middle of a parse, lets another thread parse."""

    def __init__(self, collected: Event, parsed: Event) -> None:
        self._collected, self._parsed, self._self = collected, parsed, self

    def __del__(self) -> None:
        self._collected.set()
        self._parsed.wait(0.1)


@pytest.fixture
def frequent_collection() -> Generator[None]:
    gc.collect()
    usual = gc.get_threshold()
    gc.set_threshold(20, 1, 1)
    yield
    gc.set_threshold(*usual)


@pytest.mark.usefixtures("frequent_collection")
@pytest.mark.parametrize("parse", [parse_module, ast.parse], ids=["ours", "others"])
def test_two_threads_parse_while_garbage_is_collected(
    parse: Callable[[str], object],
) -> None:
    collected, parsed = Event(), Event()

    def parse_when_collected() -> None:
        collected.wait()
        with suppress(SystemError):  # of the other one, which is not ours
            parse(SOURCE)
        parsed.set()

    other = Thread(target=parse_when_collected)
    other.start()
    Garbage(collected, parsed)
    tree = parse_module(SOURCE)
    other.join()

    assert len(tree.body) == 50


def test_an_expression_is_parsed_and_a_wrong_one_refused() -> None:
    assert parse_expression("1 + x").body.lineno == 1
    with pytest.raises(SyntaxError):
        parse_expression("x = 1")
