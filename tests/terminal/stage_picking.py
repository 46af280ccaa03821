"""Shows a picker in a real terminal, and prints which session was picked. Tests start it."""

import os
import sys
import time
from pathlib import Path

import anyio

from refold.client.catalogue import SessionCatalogue
from refold.config.paths import paths
from refold.console.list_prompt import pick
from refold.journal.journal_directory import JournalDirectory
from refold.terminal.this_terminal import open_terminal
from refold.views.session_list import session_picker


def main(display: str) -> None:
    screen, reading = open_terminal(display=display)
    catalogue = SessionCatalogue(
        JournalDirectory(paths(os.environ).data / "sessions"), Path.cwd()
    )
    cards = anyio.run(catalogue.sessions)
    picker = session_picker(cards, time.time())
    choice = anyio.run(pick, screen, reading, picker, catalogue.search_while_typing)
    screen.print_text(
        f"picked: {choice.selection.id if choice and choice.selection else 'none'}."
    )


if __name__ == "__main__":
    main(sys.argv[1])
