"""Ctrl+C while modules are loaded: it ends us at once, without a word.

As an exception it could come up anywhere in somebody else's module, or be lost there.
Whatever has begun something that must be ended in good order is not loading any more.
"""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def loading() -> Generator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # switched off, or heard by somebody
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)
