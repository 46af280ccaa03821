"""Where the person stands: the directory that a command is about unless it names another."""

from pathlib import Path

from refold.errors import BadInput


def here() -> Path:
    """The current directory. Raises `BadInput` where it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory is gone: change to one that exists"
        ) from error
