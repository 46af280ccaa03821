"""Suggests names of files that are similar to the name of a missing file.

A model that misremembers a name gets the right one without another call. Only names inside the
workspace are listed.
"""

import posixpath

from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.values.printable_names import escape_name
from refold.values.similar_names import similar

_MAX_LISTED_FILES = 8  # files listed if no name is similar


def similar_names_text(files: Files, real: Real) -> str:
    """Return a sentence with names of files that the missing `real` may mean, or ""."""
    above = Real(posixpath.dirname(real))
    if files.outside(real) is not None or files.kind(above) != "directory":
        return ""
    try:
        names = [entry.name for entry in files.items(above) if entry.kind == "file"]
    except ToolFailed:
        return ""
    if suggestions := similar(posixpath.basename(real), names):
        return f"Did you mean {' or '.join(_display_names(files, above, suggestions))}?"
    if 0 < len(names) <= _MAX_LISTED_FILES:
        return (
            f"The files there are {', '.join(_display_names(files, above, sorted(names)))}."
        )
    return ""


def _display_names(files: Files, folder: Real, names: list[str]) -> list[str]:
    return [
        escape_name(files.display_name(Real(posixpath.join(folder, name))))
        for name in names
    ]
