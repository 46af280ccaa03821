"""Write one setting into the user's file, and leave the rest of it as it is."""

import re
from pathlib import Path


def remember(file: Path, key: str, value: str) -> None:
    """Set a top-level text `key`, keeping comments, order and tables."""
    line = f'{key} = "{value}"\n'
    try:
        before = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = ""
    found = re.search(rf"^{re.escape(key)}\s*=.*\n?", before, re.MULTILINE)
    table = re.search(r"^\s*\[", before, re.MULTILINE)
    if found and (not table or found.start() < table.start()):
        after = before[: found.start()] + line + before[found.end() :]
    else:
        after = line + before
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(after, encoding="utf-8")
    temporary.replace(file)
