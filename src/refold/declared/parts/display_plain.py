"""The display mode `plain`: text is only appended."""

import re
from collections.abc import Generator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print text for the user."""
    # Text of a model or a file must not be able to control the terminal.
    print(re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text), flush=True)


@contextmanager
def waiting(what: str) -> Generator[None, None, None]:
    """Say what is going on. A line of its own works in every terminal, pipe and log."""
    say(f"[{what} ...]")
    yield
