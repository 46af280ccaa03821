"""Reads keys and paints frames while refold uses the terminal.

While another program uses the terminal, for example an editor, nothing is read or painted.
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
from refold.console.keyboard_modes import suspend, unread_input
from refold.console.printer import Printer
from refold.tui.image_loader import ImageLoader
from refold.tui.key_parser import Keyboard
from refold.tui.messages import Message, Resized
from refold.tui.model import Model
from refold.tui.painter import Painted, paint
from refold.tui.screen_modes import ScreenModes, write
from refold.tui.view import Frame, view

_FRAME_SECONDS = 1 / 20  # between two frames that were not caused by a key
_FRAMES_PER_SECOND = 25.0  # added to the saved frames
_MAX_SAVED_FRAMES = 5.0  # so that at most 30 frames are painted in a second
_ESC_SECONDS = 0.04  # within which the rest of a key arrives


class FramePacer:
    """Decides when the next frame may be painted: at once after a key, otherwise later.

    The rate is limited by saved frames: each frame takes one, 25 are added in each second, and
    at most 5 are saved. A frame that no key has caused also waits until 1/20 of a second has
    passed since the last frame.
    """

    def __init__(self) -> None:
        self._saved = _MAX_SAVED_FRAMES  # frames that the last frame left
        self._last = 0.0  # the time of the last frame

    def note_frame(self, now: float) -> None:
        """Record that a frame was painted."""
        self._saved = self._count_frames(now) - 1
        self._last = now

    def wait(self, now: float, *, keyed: bool) -> float:
        """Return the seconds until the next frame may be painted.

        `keyed` says that the frame shows the effect of a key.
        """
        seconds_until_saved = max(1 - self._count_frames(now), 0.0) / _FRAMES_PER_SECOND
        if keyed:
            return seconds_until_saved
        return max(seconds_until_saved, self._last + _FRAME_SECONDS - now)

    def _count_frames(self, now: float) -> float:
        new_frames = (now - self._last) * _FRAMES_PER_SECOND
        return min(self._saved + new_frames, _MAX_SAVED_FRAMES)


class Foreground:
    """The terminal while refold uses it. Its keys and its size are passed to `post` as
    messages.
    """

    def __init__(
        self,
        modes: ScreenModes,
        capabilities: TerminalCapabilities,
        post: Callable[[Message], None],
        images: ImageLoader,
    ) -> None:
        self.capabilities, self._images = capabilities, images
        self._modes, self._post = modes, post
        self._last_painted: Painted | None = None
        self._changed = anyio.Event()  # a frame was requested
        self._keyed = anyio.Event()  # the requested frame shows the effect of a key
        self._is_ours = anyio.Event()  # no other program uses the terminal
        self._reading_scope = anyio.CancelScope()
        self._typed_ahead = b""  # keys from before the screen was entered

    def enter(self) -> None:
        """Take over the terminal, and keep the keys that were typed during the start."""
        self._modes.enter()
        # Keys typed during the start arrived as lines, in which Enter is a line feed.
        self._typed_ahead = unread_input(0).replace(b"\n", b"\r")
        self._is_ours.set()

    def close(self) -> None:
        write(self._images.painter.delete_images_sequence())
        self._modes.close()

    def size(self) -> tuple[int, int]:
        """Return the columns and rows of the terminal; 80 and 24 if they are unknown."""
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    async def run(self) -> None:
        """Post keys and changes of the size, until the terminal is closed."""
        keyboard = Keyboard()
        self._dispatch(keyboard.feed(self._typed_ahead, anyio.current_time()))
        is_open = True
        while is_open:
            await self._is_ours.wait()
            async with anyio.create_task_group() as group:
                self._reading_scope = group.cancel_scope
                group.start_soon(self._post_new_sizes)
                is_open = await self._read_keys(keyboard)
                group.cancel_scope.cancel()

    def request_frame(self, *, keyed: bool = False) -> None:
        """Request a frame. `keyed` says that the frame shows the effect of a key."""
        self._changed.set()
        if keyed:
            self._keyed.set()

    async def paint_frames(self, model: Callable[[], Model]) -> None:
        """Paint the requested frames, until cancelled."""
        pace = FramePacer()
        while True:
            await self._changed.wait()
            # A key makes the frame due earlier.
            with anyio.move_on_after(pace.wait(anyio.current_time(), keyed=False)):
                await self._keyed.wait()
                await anyio.sleep(pace.wait(anyio.current_time(), keyed=True))
            self._changed, self._keyed = anyio.Event(), anyio.Event()
            now = model()
            self._paint(view(now), now.width)
            pace.note_frame(anyio.current_time())

    def _paint(self, frame: Frame, width: int) -> None:
        """Write what differs from the last frame, unless another program has the terminal."""
        if not self._is_ours.is_set():
            return
        text = paint(
            frame, width, self._last_painted, self.capabilities, self._images.painter
        )
        if text:
            write(text)
            self._last_painted = Painted(frame.rows, frame.cursor, width)
        self._images.request_missing_images(frame.rows)

    def repaint(self) -> None:
        """Paint the next frame completely, because the terminal may show something else."""
        self._last_painted = None
        self._post(Resized(*self.size()))  # which wakes the painter

    @asynccontextmanager
    async def lend_terminal(self) -> AsyncGenerator[Printer]:
        """Let another program use the terminal in this context. Yield a printer for it."""
        self._is_ours = anyio.Event()
        self._reading_scope.cancel()
        await checkpoint()  # the task that reads the keyboard must stop first
        write(self._images.painter.delete_images_sequence())
        self._modes.leave()
        try:
            yield Printer(sys.stdout, self.capabilities)
        finally:
            self._restore_screen()
            self._is_ours.set()

    async def edit_text(self, text: str, command: tuple[str, ...], name: str) -> str:
        """Return the text after the user has edited it in an editor, which uses the terminal."""
        async with self.lend_terminal():
            return await edit_text(text, command, name)

    def suspend(self) -> None:
        """Suspend the process, as Ctrl+Z does, until the shell continues it."""
        write(self._images.painter.delete_images_sequence())
        self._modes.leave()
        suspend(group=0)
        self._restore_screen()

    def _restore_screen(self) -> None:
        self._modes.resume()
        self.repaint()

    async def _read_keys(self, keyboard: Keyboard) -> bool:
        """Post keys. Return False when the terminal is closed. `lend_terminal` cancels this."""
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
        """Draw the screen again when the terminal has another size, or the process continues."""
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as signals:
            async for _ in signals:
                self.repaint()
