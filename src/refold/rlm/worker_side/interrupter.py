"""Interrupts the code of a cell with an exception that is repeated until the code ends.

If the code still does not end, the host kills the process.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

_UNWIND_SECONDS = 0.1  # for code to end by itself after `leave`
_INTERVAL_SECONDS, _MAX_LEAVE_SECONDS = 0.005, 1.0
_MAX_PENDING = 10  # more than the number of interrupts that can be pending


class Stopped(SystemExit):
    """Raised to end the cell. It does not mean that the cell failed."""


class Interrupter:
    """Interrupts the code in the main thread by raising exceptions in it."""

    def __init__(self) -> None:
        self.why = ""
        self._running, self._lock = False, threading.Lock()
        self._leaving = False  # a plain flag, so that resetting it calls nothing
        self._cell = 0
        self._main = threading.main_thread().ident or 0
        threading.excepthook = _ignore_system_exit

    @property
    def running(self) -> bool:
        return self._running

    def run(self, function: Callable[[], None]) -> None:
        """Run a function in the main thread. Raises `Stopped` if it is interrupted.

        Any exception of the function is passed on.
        """
        signal.signal(signal.SIGINT, self._on_signal)
        with self._lock:
            self.why, self._running, self._leaving = "", True, False
            self._cell += 1
        try:
            function()
        finally:
            self._end()

    def stop(self, reason: str, *, interval: float = 0.25) -> None:
        """Interrupt the running cell, unless it is being interrupted already. Any thread may
        call this.

        `interval` is the time in seconds between two exceptions.
        """
        with self._lock:
            if not self._running or self.why:
                return
            self.why = reason
        threading.Thread(
            target=self._interrupt_until_over, args=(self._cell, interval), daemon=True
        ).start()

    def announce_leave(self, reason: str) -> None:
        """Prevent exceptions in the main thread from now until it calls `leave`.

        Otherwise code could catch an exception before the trace function is set, and continue.
        A call from any other thread does nothing.
        """
        if threading.get_ident() == self._main:
            self._leaving = True
            _raise_at_next_line(sys._getframe(1), reason)  # pyright: ignore[reportPrivateUsage] - no other way

    def leave(self, reason: str) -> None:
        """Raise `Stopped` in the calling thread, and interrupt the cell."""
        self.stop(reason, interval=_INTERVAL_SECONDS)
        if threading.get_ident() == self._main:
            self._leaving = False
        raise Stopped(reason)

    def check(self) -> None:
        """Raise `Stopped` if the cell is being interrupted."""
        if self._running and self.why:
            raise Stopped(self.why)

    def _on_signal(self, *_: object) -> None:
        if not self._leaving:
            self.check()

    def _interrupt_until_over(self, cell: int, interval: float) -> None:
        """Raise exceptions in the main thread until this cell has ended."""
        import ctypes

        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        round_number = 0
        while True:
            self._wait_for_leaver()
            with self._lock:
                if not self._running or cell != self._cell:
                    return
                # Only a signal interrupts a system call. But code may have replaced the
                # handler, so the exception is raised, too.
                if round_number % 2 == 0:
                    signal.pthread_kill(self._main, signal.SIGINT)
                else:
                    raise_in(ctypes.c_ulong(self._main), ctypes.py_object(Stopped))
            round_number += 1
            time.sleep(interval)

    def _wait_for_leaver(self) -> None:
        """Wait briefly for the main thread if it has announced that it will stop by itself."""
        if not self._leaving:
            return
        deadline = time.monotonic() + _MAX_LEAVE_SECONDS
        while self._leaving and time.monotonic() < deadline:
            time.sleep(_INTERVAL_SECONDS)
        self._leaving = False
        # `leave` now raises `Stopped`, which may end the code without an interrupt.
        time.sleep(_UNWIND_SECONDS)

    def _end(self) -> None:
        """End the cell, and let pending interrupts be raised here instead of later."""
        sys.settrace(None)
        # A pending interrupt is raised in this loop. Clearing it instead would leave a flag
        # of Python set permanently, with which tracing never ends.
        for _ in range(_MAX_PENDING):
            try:
                with self._lock:
                    self._running = False
                for _ in range(_MAX_PENDING):
                    pass
            except Stopped:
                continue


def _ignore_system_exit(ended: threading.ExceptHookArgs) -> None:
    """Handle an exception in a thread as usual, but ignore `SystemExit` and its subclasses."""
    if not issubclass(ended.exc_type, SystemExit):
        threading.__excepthook__(ended)


def _raise_at_next_line(frame: FrameType | None, reason: str) -> None:
    """Let each frame of a cell raise at its next line, so that no handler can continue."""

    def trace(frame: FrameType, event: str, argument: object) -> object:
        if event == "line":
            raise Stopped(reason)
        return trace

    while frame:
        if frame.f_code.co_filename.startswith("<cell "):
            frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(_no_trace)


def _no_trace(frame: FrameType, event: str, argument: object) -> None:
    """Do nothing. It is set as the trace function only to turn tracing on for all frames."""
