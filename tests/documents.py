"""The pages of docs/ about one subject, for tests of what they say."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def read_pages(*names: str) -> str:
    """The text of pages in this order, each named by its shelf and name."""
    return "\n".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in names)
