"""Writes the SDK's log messages to refold's log. Without a handler, Python would print them.

A program that uses refold as a library still gets these messages in its own handlers.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from refold.values.log_level import Level

_LIBRARY_LOGGERS = ("mcp", "httpx2")
_MAX_CHARS = 500


@contextmanager
def library_log(log: Callable[[Level, str], None]) -> Generator[None]:
    """Call `log` for each message that the SDK logs within the block."""
    handler = _Lines(log)
    loggers = [logging.getLogger(name) for name in _LIBRARY_LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _Lines(logging.Handler):
    def __init__(self, log: Callable[[Level, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error else ""
        self._log("info", f"{record.name}: {record.getMessage()}{why}"[:_MAX_CHARS])
