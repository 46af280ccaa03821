"""A picker in a real terminal: prints which session was picked. Run by the stories."""

import os
import sys
from pathlib import Path

import anyio

from refold.cli.sessions.picker import choose
from refold.config.paths import paths
from refold.journal.home import Home
from refold.terminal.this_terminal import this_terminal


def main(display: str) -> None:
    screen, reading = this_terminal(display=display)
    home = Home(paths(os.environ).data / "sessions")
    picked = anyio.run(choose, screen, reading, home, Path.cwd())
    screen.say(f"picked: {picked or 'none'}.")


if __name__ == "__main__":
    main(sys.argv[1])
