"""Makes Ctrl+C end the process at once and silently while modules are imported.

Otherwise `KeyboardInterrupt` could be raised within an imported module, and be lost there.
During imports nothing is open yet, so nothing must be closed.
"""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exit_on_interrupt() -> Generator[None]:
    """In the block, exit the process silently at Ctrl+C."""
    before = signal.getsignal(signal.SIGINT)
    # leave the signal alone if it is ignored, or has another handler
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _exit_at_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_at_interrupt(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)
