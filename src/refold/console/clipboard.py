"""Loads images for messages, and copies text to the clipboard.

Images come from files that a message names, and from the clipboard of the desktop, which is
read with a desktop program. The input line shows a label for the image. The image is sent
with the message if the label is still in the message. The terminal itself pastes text. Text
is copied by the terminal, or by tmux.
"""

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryFile

import anyio

from refold import programs
from refold.client.session import Session
from refold.client.types import ImageData, image_data
from refold.console.printer import Printer
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line, visible

_MAX_COPIED_CHARS = 100_000  # the limit for copying through a terminal
_READ_SECONDS = 5.0  # for the program to answer
_WAYLAND_COMMAND = ("wl-paste", "--no-newline", "--type", "image/png")
_X11_COMMAND = ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")
_MAC_COMMAND = ("pngpaste", "-")
# -w, since tmux 3.2, also copies to the clipboard of the terminal that shows tmux.
_TMUX_COMMANDS = (("load-buffer", "-w", "-"), ("load-buffer", "-"))
_TERMINAL_HINT = "Sent to the clipboard, if your terminal allows OSC 52."
_TMUX_HINT = "Copied: tmux pastes it with its prefix and ]."
_FILE_HINT = "name a file instead, as @image.png"


def copy_sequence(text: str) -> str:
    """Return the sequence (OSC 52) that makes the terminal copy `text` to the clipboard."""
    code = base64.b64encode(text[:_MAX_COPIED_CHARS].encode(errors="replace")).decode()
    return f"\x1b]52;c;{code}\x07"


class Clipboard:
    """Loads images from the clipboard, keeps them by their labels, and copies text."""

    def __init__(self, environ: Mapping[str, str], platform: str = sys.platform) -> None:
        self._environ, self._platform = environ, platform
        self._taken = dict[str, ImageData]()

    async def take_image(self) -> str:
        """Take the image on the clipboard, and return its label.

        Raises `BadInput` if there is no image, or if it cannot be read.
        """
        content = await anyio.to_thread.run_sync(self._read_image)
        number = len(self._taken) + 1
        label = f"[image {number}]"
        self._taken[label] = image_data(content, f"clipboard-{number}.png")
        return label

    async def copy_text(self, text: str) -> tuple[str, str]:
        """Copy the text to the clipboard.

        Return the sequence that the caller must send to the terminal for this, and a hint for
        the user. If tmux accepts the text, the sequence is "".
        """
        limit_note = ""
        if len(text) > _MAX_COPIED_CHARS:
            limit_note = (
                f"Only the first {_MAX_COPIED_CHARS:,} of {len(text):,} characters: "
            )
        in_tmux = bool(self._environ.get("TMUX"))
        if in_tmux and await anyio.to_thread.run_sync(self._load_tmux_buffer, text):
            return "", limit_note + _TMUX_HINT
        return copy_sequence(text), limit_note + _TERMINAL_HINT

    def images_in(self, text: str) -> tuple[ImageData, ...]:
        """Return the images whose labels occur in `text`."""
        return tuple(image for label, image in self._taken.items() if label in text)

    def _load_tmux_buffer(self, text: str) -> bool:
        """Copy the text to a buffer of tmux. Return False if tmux does not accept it."""
        program = programs.Programs(self._environ).find("tmux")
        if not program:
            return False
        environ = programs.without_loader_variables(self._environ)
        for arguments in _TMUX_COMMANDS:
            with TemporaryFile() as file:
                file.write(text[:_MAX_COPIED_CHARS].encode(errors="replace"))
                file.seek(0)
                try:
                    result = programs.run(
                        (program, *arguments), _READ_SECONDS, env=environ, stdin=file
                    )
                except (OSError, programs.TimedOut):
                    return False
            if result.returncode == 0:
                return True
        return False

    def _read_image(self) -> bytes:
        """Return the image on the clipboard as PNG. Raises `BadInput` if there is none."""
        commands = list(self._commands())
        if not commands:
            raise BadInput(f"no clipboard can be reached from here: {_FILE_HINT}")
        installed = programs.Programs(self._environ)
        for name, *arguments in commands:
            if program := installed.find(name):
                return self._read_output((program, *arguments))
        names = " or ".join(name for name, *_ in commands)
        raise BadInput(f"reading an image from the clipboard needs {names}: {_FILE_HINT}")

    def _commands(self) -> Iterator[tuple[str, ...]]:
        """Yield the commands that can read an image on this platform and kind of display."""
        if self._platform == "darwin":
            yield _MAC_COMMAND
        if self._environ.get("WAYLAND_DISPLAY"):
            yield _WAYLAND_COMMAND
        if self._environ.get("DISPLAY"):
            yield _X11_COMMAND

    def _read_output(self, command: tuple[str, ...]) -> bytes:
        """Return the image that the command prints. Raises `BadInput` if there is none."""
        try:
            result = programs.run(
                command, _READ_SECONDS, env=programs.without_loader_variables(self._environ)
            )
        except (OSError, programs.TimedOut) as error:
            raise BadInput(f"{command[0]} could not read the clipboard: {error}") from error
        if result.returncode or not result.stdout:
            raise BadInput("there is no image on the clipboard")
        return result.stdout


def load_named_images(text: str, session: Session, printer: Printer) -> Sequence[ImageData]:
    """Load the images that a message names, and print a line about each."""
    named = session.workspace.images_in(text)
    print_sent_images(named.images, printer)
    for problem in named.problems:
        printer.print_text(visible(problem), "warn")
    return named.images


def print_sent_images(images: Sequence[ImageData], printer: Printer) -> None:
    for image in images:
        printer.print_text(f"image sent: {escape_to_one_line(image.name)}", "dim")
