"""Reads images of the session on the screen: sizes of the newest, bytes of the visible ones.

If the terminal cannot draw images, nothing is read. `image_painter` draws them.
"""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from refold.errors import RefoldError
from refold.tui.image_painter import ImagePainter
from refold.tui.image_sizes import ImageSize, cell_size, image_size
from refold.tui.messages import ImagesMeasured
from refold.views.styled import Line

_MAX_NEWEST_IMAGES = 200  # images of a long session that are drawn


class ImageLoader:
    """Reads images. `read_image` returns the bytes of an image."""

    def __init__(
        self,
        painter: ImagePainter,
        read_image: Callable[[str], Awaitable[bytes]],
        post: Callable[[ImagesMeasured], None],
    ) -> None:
        self.painter, self._read, self._post = painter, read_image, post
        self._wanted, self._news = dict[str, None](), anyio.Event()
        self._failed = set[str]()

    async def measure(self, names: Sequence[str]) -> None:
        """Measure the newest of these images, and post their sizes in one message."""
        if not self.painter.protocol:
            return
        sizes = dict[str, ImageSize]()
        cell = cell_size()
        for name in names[-_MAX_NEWEST_IMAGES:]:
            content = await self._read_image(name)
            if not self.painter.can_draw(content):
                continue
            size = image_size(content, cell)
            if size is not None:
                self.painter.set_size(name, size)
                sizes[name] = size
        if sizes:
            self._post(ImagesMeasured(sizes))

    def request_missing_images(self, rows: Sequence[Line]) -> None:
        """Request the bytes of the images in these rows that the painter does not have."""
        for name in self.painter.missing_images(rows):
            if name not in self._failed:
                self._wanted[name] = None
                self._news.set()

    async def run(self, on_loaded: Callable[[], None]) -> None:
        """Read the requested images, until cancelled. `on_loaded` is called after each."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._wanted:
                name = next(iter(self._wanted))
                if content := await self._read_image(name):
                    self.painter.add_content(name, content)
                else:
                    self._failed.add(name)
                del self._wanted[name]
                on_loaded()

    async def _read_image(self, name: str) -> bytes:
        """Return the bytes of an image, or b"" if it cannot be read."""
        try:
            return await self._read(name)
        except RefoldError:
            return b""
