"""Figures in columns, with the first row as the measure of the others."""

from collections.abc import Sequence


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}")
    cells = [[str(c) for c in row] for row in [("", *heads), *rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    for row in cells:
        first, *others = row
        line = "  ".join(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))
        print(f"  {first.ljust(widths[0])}  {line}")


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def times(value: float, measure: float) -> str:
    return f"×{value / measure:.2f}" if measure > 0 else "–"
