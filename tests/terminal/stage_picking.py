"""A picker in a real terminal: prints which session was picked. Run by the stories."""

import os
import sys
from pathlib import Path

import anyio

from refold.client.catalogue import SessionCatalogue
from refold.config.paths import paths
from refold.journal.home import Home
from refold.terminal.prompts.session_picker import pick
from refold.terminal.this_terminal import this_terminal


def main(display: str) -> None:
    screen, reading = this_terminal(display=display)
    catalogue = SessionCatalogue(Home(paths(os.environ).data / "sessions"), Path.cwd())
    cards = anyio.run(catalogue.sessions)
    picked = anyio.run(pick, screen, reading, cards, catalogue.typed_so_far)
    screen.say(f"picked: {picked or 'none'}.")


if __name__ == "__main__":
    main(sys.argv[1])
