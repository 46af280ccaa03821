"""Pastes the image on the clipboard with Ctrl+V, as a label in the text of the prompt.

`clipboard` reads the image and makes the label. Text is pasted by the terminal, see `pastes`.
"""

from collections.abc import Awaitable, Callable

from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyPressEvent

from refold.console.printer import Printer
from refold.errors import BadInput
from refold.views.escape import visible


def image_paste_handler(
    printer: Printer, image: Callable[[], Awaitable[str]]
) -> Callable[[KeyPressEvent], None]:
    """Return the handler of Ctrl+V, which inserts the label of the image on the clipboard.

    The handler calls `image`, which loads the image from the clipboard and returns its label.
    If the clipboard has no image, a line above the prompt says why.
    """

    async def paste(buffer: Buffer) -> None:
        """Insert the label of the pasted image, after a blank if text is before the cursor."""
        try:
            label = await image()
        except BadInput as error:
            async with in_terminal():
                printer.print_text(visible(str(error)), "warn")
            return
        before = buffer.document.char_before_cursor
        buffer.insert_text(f" {label}" if before.strip() else label)

    def handle_key(event: KeyPressEvent) -> None:
        event.app.create_background_task(paste(event.current_buffer))

    return handle_key
