"""The work of laying out Markdown and diffs grows as the text does, whatever the text is."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from refold.views.markdown.renderer import MarkdownRenderer
from refold.views.word_diff import diff_rows, numbered_diff

TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog, and writes it down.\n\n",
    "list": "- item with **bold**, `code` and [a link](http://x.y/z)\n",
    "code block": "```python\ndef f(x): return x + 1  # note\n```\n",
    "long code block": "    def f(x): return x + 1  # note\n",
    "table": "| a | b |\n|---|---|\n| 1 | word |\n\n",
    "quotes": ">" * 100 + "x\n",
    "quotes with gaps": "> " * 50 + "w\n",
    "one line of quotes": "> ",
    "quotes with emphasis": ">" * 40 + " *a*\n",
    "lists": "- " * 50 + "w\n",
    "quotes and lists": "> - " * 25 + "w\n",
    "emphasis": "**word** " * 9 + "\n",
    "code": "`a` " * 20 + "\n",
    "open brackets": "[a",
    "stars": "*a",
    "addresses": "http://a.b " * 8 + "\n",
}


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Counts the calls of functions, which are as many on every machine."""
    count = [0]

    def on_event(_frame: object, event: str, _argument: object) -> None:
        count[0] += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield count
    finally:
        sys.setprofile(before)


def work(text: str, step: int) -> int:
    renderer = MarkdownRenderer(80, links=True)
    with counted_calls() as count:
        for start in range(0, len(text), step):
            renderer.add(text[start : start + step])
        renderer.end()
    return count[0]


@pytest.mark.slow
@pytest.mark.parametrize("step", [60, 100_000])
@pytest.mark.parametrize("name", TEXTS)
def test_work_of_the_renderer_grows_linearly_with_the_text(name: str, step: int) -> None:
    unit = TEXTS[name]
    short, long = (unit * (size // len(unit)) for size in (6_000, 24_000))
    work("warm up: **a**\n", step)

    little, much = work(short, step), work(long, step)

    assert much <= 5 * little
    assert much <= 200 * len(long)


def changed_in_turn(size: int) -> str:
    pair = "-    return one + two\n+    return one - two\n"
    return f"@@ -1,9 +1,9 @@\n{pair * (size // len(pair))}"


def changed_as_a_block(size: int) -> str:
    old, new = "-    return one + two\n", "+    return one - two\n"
    count = size // len(old + new)
    return f"@@ -1,9 +1,9 @@\n{old * count}{new * count}"


def one_long_line(size: int) -> str:
    old = [str(number) for number in range(10_000, 10_000 + size // 12)]
    new = [word if index % 2 else "x" for index, word in enumerate(old)]
    return f"@@ -1,1 +1,1 @@\n-{' '.join(old)}\n+{' '.join(new)}\n"


def many_hunks(size: int) -> str:
    hunk = "@@ -1,1 +1,1 @@\n-one two\n+one 2\n"
    return hunk * (size // len(hunk))


@pytest.mark.parametrize("room", [80, 160], ids=["one column", "two columns"])
@pytest.mark.parametrize(
    "text", [changed_in_turn, changed_as_a_block, one_long_line, many_hunks]
)
def test_work_of_a_diff_grows_linearly_with_its_text(
    text: Callable[[int], str], room: int
) -> None:
    short, long = text(20_000), text(80_000)
    numbered_diff(diff_rows(short), "a.py", room)  # warm up

    with counted_calls() as little:
        numbered_diff(diff_rows(short), "a.py", room)
    with counted_calls() as much:
        numbered_diff(diff_rows(long), "a.py", room)

    assert much[0] <= 5 * little[0]
    assert much[0] <= 10 * len(long)
