"""Takes the images of the full screen for the documents: `python -m tests.tui.screen_images DIR`.

Each image is a story with a scripted model in a pseudo terminal, written as SVG when the last step
of the story is on the screen.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from tests.terminal.pty_terminal import ENTER, Terminal
from tests.tui.conftest import HELLO, PROGRAM

CELL, LINE, SIZE = 8.4, 18, 14  # pixels: width and height of a cell, size of a letter
NBSP = "\xa0"  # browsers join blanks to one
INK, PAPER = "#d4d4d4", "#1c1c1c"
_NAMED = {
    "black": "#1c1c1c", "red": "#f28b82", "green": "#8fce8f", "brown": "#e3c77a", "yellow": "#e3c77a",
    "blue": "#8ab4f8", "magenta": "#d7a6e8", "cyan": "#86cfd6", "white": "#d4d4d4",
    "brightblack": "#8a8a8a", "brightred": "#ff9c94", "brightgreen": "#a6e3a6",
    "brightbrown": "#f5dc95", "brightyellow": "#f5dc95", "brightblue": "#a9c9ff",
    "brightmagenta": "#e6bdf5", "brightcyan": "#a3e4ea", "brightwhite": "#ffffff",
}  # fmt: skip
F3, F4, F5, CTRL_P, CTRL_T = "\x1bOR", "\x1bOS", "\x1b[15~", "\x10", "\x14"
PALETTE = {
    "text": "The greeting is made in `hello.py`:\n\n| file | function |\n|---|---|\n| hello.py | `greet` |\n\n"
    "```python\ndef greet():\n    return \"hi\"\n```\n\nI change **one word**.",
    "calls": [{"tool": "read_file", "arguments": {"path": "hello.py"}}],
}  # fmt: skip
CHANGE: dict[str, Any] = {
    "calls": [
        {"tool": "edit_file", "arguments": {"path": "hello.py", "old": '"hi"', "new": '"hello"'}}
    ]
}  # fmt: skip
TODOS: dict[str, Any] = {
    "calls": [
        {"tool": "todo_write", "arguments": {"todos": [
            {"subject": "Find where the greeting is made", "status": "completed"},
            {"subject": "Change it", "status": "in_progress"},
            {"subject": "Run the tests", "status": "pending"},
        ]}}
    ]
}  # fmt: skip
PLAN: dict[str, Any] = {
    "calls": [
        {"tool": "exit_plan_mode", "arguments": {
            "plan": "# A kinder greeting\n\n1. Change the word in `hello.py`\n2. Run `python hello.py`\n"
            "3. Say what it prints",
        }}
    ]
}  # fmt: skip
DONE = {"text": "`hello.py` says **hello** now. Nothing else has changed."}


class Story(NamedTuple):
    """A story. Each of `steps` is the keys to press, and a text to wait for after them."""

    name: str
    answers: Sequence[dict[str, Any]]
    steps: Sequence[tuple[str, str]]
    size: tuple[int, int] = (30, 100)
    flags: tuple[str, ...] = ()


CALM = "› 1 "  # a choice is marked once keys can answer
SAY = ("say hello, not hi" + ENTER, CALM)
STORIES = (
    Story("transcript", (PALETTE, CHANGE, DONE), (SAY, ("y", "Nothing else"))),
    Story("question", (PALETTE, CHANGE, DONE), (SAY,)),
    Story("wide", (PALETTE, TODOS, CHANGE, DONE),
          (SAY, ("y", "Nothing else"), (F4, "Changed files"), ("\t", "return \"hello\"")), size=(30, 150)),
    Story("plan", (PLAN, DONE), (("make it kinder" + ENTER, CALM),),
          flags=("--permission-mode", "plan")),
    Story("palette", (DONE,), (("hello" + ENTER, "Nothing else"), (CTRL_P, "Enter chooses"), ("mod", "/model"))),
    Story("narrow", (PALETTE, TODOS, CHANGE, DONE),
          (SAY, ("y", "Nothing else"), (F5, "Context and cost")), size=(30, 56)),
)  # fmt: skip


def take_image(story: Story, place: Path) -> str:
    """Play the story, and return its last screen as SVG."""
    work = place / "greetings"
    work.mkdir()
    (work / "hello.py").write_text(HELLO, encoding="utf-8")
    script = place / "script.jsonl"
    script.write_text("".join(f"{json.dumps(answer)}\n" for answer in story.answers))
    terminal = Terminal(
        PROGRAM, "tui", "--script", str(script), *story.flags, directory=work,
        compiled=place / "compiled", size=story.size, HOME=str(place), REFOLD_HOME=str(place / "home"),
        REFOLD_MEMORY="0", COLORTERM="truecolor",
    )  # fmt: skip
    try:
        terminal.until("Ask anything")
        for keys, text in story.steps:
            time.sleep(0.7)
            terminal.type(keys)
            terminal.until(text)
        time.sleep(0.5)
        terminal.read(100_000)
        return svg(terminal.screen, story.name)
    finally:
        terminal.child.close(force=True)


def svg(screen: Any, title: str) -> str:
    """Return a pyte screen as SVG: a rectangle for each background, a text for each run of
    a style.
    """
    width, height = screen.columns * CELL + 24, screen.lines * LINE + 24
    rows = "".join(_row(screen.buffer[y], screen.columns, y) for y in range(screen.lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">\n'
        f"<title>the full screen: {escape(title)}</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n'
        f'<g font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="{SIZE}">\n{rows}</g>\n</svg>\n'
    )


def _row(cells: Any, columns: int, y: int) -> str:
    def style(x: int) -> tuple[str, str, bool, bool]:
        cell = cells[x]
        ink, paper = _colour(cell.fg, INK), _colour(cell.bg, PAPER)
        return (
            (paper, ink, cell.bold, False)
            if cell.reverse
            else (ink, paper, cell.bold, cell.italics)
        )

    texts, top = list[str](), 12 + y * LINE
    for (ink, paper, bold, italic), run in groupby(range(columns), style):
        xs = list(run)
        text = "".join(cells[x].data for x in xs)
        if paper != PAPER:
            texts.append(
                f'<rect x="{_left_position(xs[0])}" y="{top}" width="{len(xs) * CELL:.1f}" height="{LINE}" '
                f'fill="{paper}"/>\n'
            )
        if words := text.strip():
            first = xs[len(text) - len(text.lstrip())]
            more = ' font-weight="bold"' if bold else ""
            more += ' font-style="italic"' if italic else ""
            texts.append(
                f'<text x="{_left_position(first)}" y="{top + SIZE}" textLength="{len(words) * CELL:.1f}" '
                f'fill="{ink}"{more}>{escape(words.replace(" ", NBSP))}</text>\n'
            )
    return "".join(texts)


def _left_position(column: int) -> str:
    return f"{12 + column * CELL:.1f}"


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _NAMED.get(name, f"#{name}")


def main(into: Path) -> None:
    for name, image in _images():
        (into / f"full-{name}.svg").write_text(image, encoding="utf-8")


def _images() -> Iterator[tuple[str, str]]:
    for story in STORIES:
        with tempfile.TemporaryDirectory() as place:
            yield story.name, take_image(story, Path(place))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
