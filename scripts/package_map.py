"""Draws the packages of refold and what they import: docs/images/packages.svg.

The rows are the layers of `pyproject.toml`, the arrows are read from the source. An arrow from a
package to another one is left out if a chain of other arrows leads there.
"""

import ast
import html
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/refold"
WIDTH, ROW_HEIGHT, MARGIN = 920, 74, 20
BOX_HEIGHT, BOX_GAP, CHAR_WIDTH = 28, 16, 8.2
STYLE = """\
text { font: 14px ui-monospace, monospace; fill: #1f2328; text-anchor: middle }
rect.box { fill: #e6eefc; stroke: #5b7fbf }
path { fill: none; stroke: #6b7280; stroke-opacity: .55 }
rect.page { fill: #ffffff }
"""


def layers() -> list[list[str]]:
    """Return the packages and modules of each layer, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [
        [name for name in re.findall(r"\w+", row) if name != "_version"]
        for row in contract["layers"]
    ]


def package_imports() -> dict[str, set[str]]:
    """Return which packages each package imports, when it is loaded or later."""
    names = {name for row in layers() for name in row}
    result: dict[str, set[str]] = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        first = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if first in names and "course" not in file.parts and "shipped" not in file.parts:
            for module in imported(ast.parse(file.read_text("utf-8"))):
                result[first] |= {module.split(".")[1]} & names - {first}
    return result


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of refold that are imported, without those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "refold":
            yield from (f"refold.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("refold."):
            yield str(node.module)
        yield from imported(node)


def reduce_edges(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the edges without each one that a chain of other edges replaces."""

    def reachable_from(name: str) -> set[str]:
        return edges.get(name, set()).union(
            *(reachable_from(other) for other in edges.get(name, ()))
        )

    return {
        name: others.difference(*(reachable_from(other) for other in others))
        for name, others in edges.items()
    }


def draw() -> str:
    rows = layers()
    places = dict(positions(rows))
    height = len(rows) * ROW_HEIGHT + 2 * MARGIN - ROW_HEIGHT + BOX_HEIGHT
    arrows = [
        arrow(places[name], places[other])
        for name, others in sorted(reduce_edges(package_imports()).items())
        for other in sorted(others)
    ]
    boxes = [box(name, *place) for name, place in places.items()]
    title = "The packages of refold in their layers, with an arrow from each to those it imports"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
            *arrows, *boxes, "</svg>\n",
        ]
    )  # fmt: skip


def positions(rows: list[list[str]]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the middle of each box."""
    for number, names in enumerate(rows):
        widths = [box_width(name) for name in names]
        left = (WIDTH - sum(widths) - BOX_GAP * (len(names) - 1)) / 2
        for name, width in zip(names, widths, strict=True):
            yield name, (left + width / 2, MARGIN + BOX_HEIGHT / 2 + number * ROW_HEIGHT)
            left += width + BOX_GAP


def box_width(name: str) -> float:
    return len(name) * CHAR_WIDTH + 22


def box(name: str, x: float, y: float) -> str:
    width = box_width(name)
    return (
        f'<rect class="box" x="{x - width / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{width:.0f}" '
        f'height="{BOX_HEIGHT}" rx="6"/><text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>'
    )


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    top, bottom = y1 + BOX_HEIGHT / 2, y2 - BOX_HEIGHT / 2
    bend = (bottom - top) / 2
    head = f"M{x2 - 4:.0f} {bottom - 6:.0f} L{x2:.0f} {bottom:.0f} L{x2 + 4:.0f} {bottom - 6:.0f}"
    return (
        f'<path d="M{x1:.0f} {top:.0f} C{x1:.0f} {top + bend:.0f} {x2:.0f} {bottom - bend:.0f} '
        f'{x2:.0f} {bottom:.0f} {head}"/>'
    )
