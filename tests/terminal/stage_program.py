"""Runs the whole program, as a person starts it, with the arguments of a test."""

import sys

from refold.cli.main import run

if __name__ == "__main__":
    run(sys.argv[1:])
