"""The whole program, as a person starts it; what it is given comes from the story."""

import sys

from refold.cli.main import run

if __name__ == "__main__":
    run(sys.argv[1:])
