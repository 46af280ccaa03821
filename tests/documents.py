"""Reads pages of docs/ for tests of their content."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def read_pages(*names: str) -> str:
    """Return the text of pages in this order. A name is like "guides/schedules"."""
    return "\n".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in names)
