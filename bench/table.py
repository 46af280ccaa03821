"""Prints figures in columns."""

from collections.abc import Mapping, Sequence
from statistics import median


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}")
    cells = [[str(c) for c in row] for row in [("", *heads), *rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    for row in cells:
        first, *others = row
        line = "  ".join(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))
        print(f"  {first.ljust(widths[0])}  {line}")


def compare(title: str, seconds: Mapping[str, Sequence[float]]) -> None:
    """Show the seconds of the runs of each, and their ratios to the runs of the first."""
    base = next(iter(seconds.values()))
    show(
        title,
        ["min", "median", "min ratio", "median ratio"],
        [
            (
                name,
                ms(min(runs)),
                ms(median(runs)),
                times(min(runs), min(base)),
                times(median(runs), median(base)),
            )
            for name, runs in seconds.items()
        ],
    )


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def at_most(target: float | None) -> str:
    """Return the text of a target for a ratio; "" if there is no target for this row."""
    return f"≤{target:g}" if target is not None else ""


def ratio_text(values: Sequence[float], measures: Sequence[float]) -> str:
    """Return the ratio of the medians, and the lowest and highest ratio of paired runs."""
    ratios = [v / m for v, m in zip(values, measures, strict=False) if m > 0]
    spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
    return times(median(values), median(measures)) + spread


def times(value: float, measure: float) -> str:
    return f"×{value / measure:.2f}" if measure > 0 else "–"
