"""Records the terminal for the player of the site: `python -m scripts.recordings`.

refold really runs, as for the animation in the README (`scripts.session_picture`). A terminal emulator
makes screens of its output, so the player in the browser only has to show text. The recordings are
`docs/recordings/*.json`. The site has them as a script, because a page that is opened as a file
cannot fetch anything.
"""

import json
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte

from scripts import session_picture

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/recordings"
# The colours that both schemes of the site can show. Other colours become that of plain text.
COLOURS = {"red", "green", "brown", "blue", "magenta", "cyan"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "greeting"
        workspace.mkdir()
        cast = session_picture.record(workspace)
    FOLDER.mkdir(exist_ok=True)
    screens = list(screens_of(cast))
    title = f"refold is asked to {session_picture.TASK}, and asks before it changes a file"
    document = {"title": title, "screens": screens}
    (FOLDER / "greeting.json").write_text(f"{json.dumps(document, indent=0)}\n", "utf-8")


def screens_of(cast: str) -> Iterator[dict[str, Any]]:
    """Yield each screen that differs from the last one: when it is shown, in seconds, and
    its rows as styled pieces.
    """
    head, *events = (json.loads(line) for line in cast.splitlines())
    screen = pyte.Screen(head["width"], head["height"])
    stream, before = pyte.Stream(screen), list[Any]()
    for second, _, text in events:
        stream.feed(text)
        rows = [row_of(screen, number) for number in range(screen.lines)]
        if rows != before:
            yield {"at": second, "rows": rows}
        before = rows


def row_of(screen: pyte.Screen, number: int) -> list[list[str]]:
    """Return the pieces of a row, each with its style: a colour, "bold", both, or ""."""
    cells = [screen.buffer[number][column] for column in range(screen.columns)]
    pieces = [
        ["".join(cell.data for cell in group), style]
        for style, group in groupby(cells, style_of)
    ]
    if pieces and not pieces[-1][1]:
        pieces[-1][0] = pieces[-1][0].rstrip()
    return [piece for piece in pieces if piece[0]]


def style_of(cell: Any) -> str:
    names = [cell.fg if cell.fg in COLOURS else "", "bold" if cell.bold else ""]
    return " ".join(name for name in names if name)


if __name__ == "__main__":
    main()
