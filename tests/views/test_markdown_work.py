"""The work of the Markdown renderer grows as the text does, whatever the text is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from refold.views.markdown.renderer import MarkdownRenderer

HOSTILE = {
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
        for at in range(0, len(text), step):
            renderer.add(text[at : at + step])
        renderer.end()
    return count[0]


@pytest.mark.slow
@pytest.mark.parametrize("step", [60, 100_000])
@pytest.mark.parametrize("name", HOSTILE)
def test_work_of_the_renderer_grows_linearly_with_the_text(name: str, step: int) -> None:
    unit = HOSTILE[name]
    short, long = (unit * (size // len(unit)) for size in (12_000, 48_000))
    work("warm up: **a**\n", step)

    little, much = work(short, step), work(long, step)

    assert much <= 5 * little
    assert much <= 200 * len(long)
