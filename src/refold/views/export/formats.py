"""The formats of an export, and the choice of one by a file's suffix."""

from pathlib import Path

EXPORT_FORMATS = ("md", "html", "tar", "text", "script")
FORMAT_SUFFIXES = {
    "md": ".md",
    "html": ".html",
    "tar": ".tar",
    "text": ".txt",
    "script": ".jsonl",
}


def format_by_name(name: str) -> str:
    """The format for the suffix of a file name; Markdown by default."""
    suffix = Path(name).suffix.lower()
    suffix = ".html" if suffix == ".htm" else suffix
    return next((form for form, end in FORMAT_SUFFIXES.items() if end == suffix), "md")
