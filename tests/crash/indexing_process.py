"""Indexes sessions in the catalogue, and kills itself at the session with a given number."""

import os
import signal
import sys
from pathlib import Path

from refold.journal.catalogue.catalogue import Catalogue
from refold.journal.journal_directory import JournalDirectory


def main(root: Path, at: int) -> None:
    home, left = JournalDirectory(root), at

    def place(session: str) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return home.path(session)

    Catalogue(root, place).freshen()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
