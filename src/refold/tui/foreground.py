"""The terminal while it is ours: its keys and size become messages, and frames are painted.

While another program has it, for example an editor, nothing is read or painted here.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

from refold.console.capabilities import TerminalCapabilities
from refold.console.editor import edit_text
from refold.console.keys import suspend, unread_input
from refold.console.printer import Printer
from refold.tui.image_loader import ImageLoader
from refold.tui.key_parser import Keyboard
from refold.tui.messages import Message, Resized
from refold.tui.model import Model
from refold.tui.painter import Painted, paint
from refold.tui.screen_modes import ScreenModes, write
from refold.tui.view import Frame, view

_FRAME_SECONDS = 1 / 20  # between two frames that no key caused
_FRAMES_PER_SECOND, _SAVED_FRAMES = (
    25.0,
    5.0,
)  # frames: together never more than 30 in a second
_ESC_SECONDS = 0.04  # seconds in which the rest of a key arrives


class FramePacer:
    """Decides when the next frame may be painted: at once for a key, later for the rest.

    Of thirty frames a second, at most twenty are for news. The others are saved up for
    keys.
    """

    def __init__(self) -> None:
        self._saved, self._last = _SAVED_FRAMES, 0.0

    def note_frame(self, now: float) -> None:
        grown = self._saved + (now - self._last) * _FRAMES_PER_SECOND
        self._saved, self._last = min(grown, _SAVED_FRAMES) - 1, now

    def wait(self, now: float, *, keyed: bool) -> float:
        """Return the seconds until the next frame."""
        saved = min(self._saved + (now - self._last) * _FRAMES_PER_SECOND, _SAVED_FRAMES)
        left = max(1 - saved, 0.0) / _FRAMES_PER_SECOND
        return left if keyed else max(left, self._last + _FRAME_SECONDS - now)


class Foreground:
    def __init__(
        self,
        modes: ScreenModes,
        capabilities: TerminalCapabilities,
        post: Callable[[Message], None],
        images: ImageLoader,
    ) -> None:
        self.capabilities, self._images = capabilities, images
        self._modes, self._post = modes, post
        self._before: Painted | None = None
        self._changed, self._keyed = anyio.Event(), anyio.Event()
        self._ours, self._scope = anyio.Event(), anyio.CancelScope()
        self._typed_ahead = b""

    def enter(self) -> None:
        self._modes.enter()
        # What was typed during the start came as lines, in which Enter is a line feed.
        self._typed_ahead = unread_input(0).replace(b"\n", b"\r")
        self._ours.set()

    def close(self) -> None:
        write(self._images.painter.delete_images_sequence())
        self._modes.close()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    async def run(self) -> None:
        """Read keys and follow the size, until the terminal is gone."""
        keyboard, is_open = Keyboard(), True
        self._dispatch(keyboard.feed(self._typed_ahead, anyio.current_time()))
        while is_open:
            await self._ours.wait()
            async with anyio.create_task_group() as group:
                self._scope = group.cancel_scope
                group.start_soon(self._post_new_sizes)
                is_open = await self._read_keys(keyboard)
                group.cancel_scope.cancel()

    def request_frame(self, *, keyed: bool = False) -> None:
        """Request a frame; `keyed` says that the person waits for it."""
        self._changed.set()
        if keyed:
            self._keyed.set()

    async def paint_frames(self, model: Callable[[], Model]) -> None:
        """Paint what has changed, until cancelled."""
        pace = FramePacer()
        while True:
            await self._changed.wait()
            with anyio.move_on_after(pace.wait(anyio.current_time(), keyed=False)):
                await self._keyed.wait()
                await anyio.sleep(pace.wait(anyio.current_time(), keyed=True))
            self._changed, self._keyed = anyio.Event(), anyio.Event()
            now = model()
            self._paint(view(now), now.width)
            pace.note_frame(anyio.current_time())

    def _paint(self, frame: Frame, width: int) -> None:
        if not self._ours.is_set():
            return
        if text := paint(
            frame, width, self._before, self.capabilities, self._images.painter
        ):
            write(text)
            self._before = Painted(frame.rows, frame.cursor, width)
        self._images.request_missing_images(frame.rows)

    def repaint(self) -> None:
        """Paint everything with the next frame: the terminal may show something else."""
        self._before = None
        self._post(Resized(*self.size()))  # which wakes the painter

    @asynccontextmanager
    async def lend_terminal(self) -> AsyncGenerator[Printer]:
        """Give the terminal to another program; yields a printer for that time."""
        self._ours = anyio.Event()
        self._scope.cancel()
        await checkpoint()  # the reader of the keyboard stops first
        write(self._images.painter.delete_images_sequence())
        self._modes.leave()
        try:
            yield Printer(sys.stdout, self.capabilities)
        finally:
            self._restore_screen()
            self._ours.set()

    async def edit_text(self, text: str, command: tuple[str, ...], name: str) -> str:
        """Edit the text in the user's editor, which has the terminal until it ends."""
        async with self.lend_terminal():
            return await edit_text(text, command, name)

    def suspend(self) -> None:
        """Stop the process, as Ctrl+Z does, until the shell continues it."""
        write(self._images.painter.delete_images_sequence())
        self._modes.leave()
        suspend(None, 0)
        self._restore_screen()

    def _restore_screen(self) -> None:
        self._modes.resume()
        self.repaint()

    async def _read_keys(self, keyboard: Keyboard) -> bool:
        """Read keys; return False if the terminal is gone. Cancelled by `lend_terminal`."""
        while True:
            await anyio.wait_readable(0)
            data = os.read(0, 65_536)
            if not data:
                return False
            self._dispatch(keyboard.feed(data, anyio.current_time()))
            with anyio.move_on_after(_ESC_SECONDS) as waited:
                await anyio.wait_readable(0)
            if waited.cancelled_caught:
                self._dispatch(keyboard.flush(anyio.current_time()))

    def _dispatch(self, messages: list[Message]) -> None:
        for message in messages:
            self._post(message)

    async def _post_new_sizes(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as signals:
            async for _ in signals:
                self.repaint()
