"""Files of ours that only the person may read: replaced whole, or not at all."""

import os
from pathlib import Path


def write(file: Path, text: str) -> None:
    """`text` instead of what was there. A link stays one. Raises `OSError`."""
    file = file.resolve()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    # One left by a crash, or put there by somebody, may have other rights.
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
