"""What the command line prints and asks, where a screen may be there or not.

How the streams are written is in `headless.streams`.
"""

import sys

from refold.headless.streams import answer_text, write

_USUAL = 80  # columns of a screen that does not tell


def answer(text: str) -> None:
    """Write what a model said: for a program as it is, on a screen without orders to it."""
    write(answer_text(text))


def columns(otherwise: int) -> int:
    """How wide a screen is; `otherwise` where there is none, or nobody knows."""
    if not sys.stdout.isatty():
        return otherwise
    import shutil  # only who fits lines needs it

    return shutil.get_terminal_size((otherwise or _USUAL, 24)).columns


def signs() -> bool:
    """Can who reads it be shown more than letters?"""
    return (sys.stdout.encoding or "").lower().startswith("utf")


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
