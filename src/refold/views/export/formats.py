"""Lists the formats of an export, and chooses one by the suffix of a file name."""

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
    """Return the format that belongs to the suffix of a file name; Markdown for other suffixes."""
    suffix = Path(name).suffix.lower()
    suffix = ".html" if suffix == ".htm" else suffix
    return next((form for form, end in FORMAT_SUFFIXES.items() if end == suffix), "md")
