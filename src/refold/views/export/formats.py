"""The formats of an export, and the one that the name of a file asks for."""

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
    """The form that the name of a file asks for; else Markdown."""
    suffix = Path(name).suffix.lower()
    suffix = ".html" if suffix == ".htm" else suffix
    return next((form for form, end in FORMAT_SUFFIXES.items() if end == suffix), "md")
