"""A yes or no of the person who gave a command; a script has said yes by giving it."""

import sys

from refold.cli.out import write


def somebody_is_here() -> bool:
    """Can a person be asked, and answer?"""
    return all(each.isatty() for each in (sys.stdin, sys.stdout))


def confirmed(question: str) -> bool:
    if not somebody_is_here():
        return True
    write(f"{question} [y/N] ")
    return said_yes()


def said_yes() -> bool:
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        write("\n")  # the shell's prompt is not to stand behind the question
        raise
