"""Opens the terminal of this process: the printer for its output, the reader for its input."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from refold.commands.completion import Complete
from refold.console.capabilities import detect_capabilities
from refold.console.printer import Printer
from refold.console.reader import PromptKeys, TerminalReader
from refold.terminal.input.line_reader import LineReader
from refold.views.escape import escape_to_one_line

_NO_STATUS = "Using the plain display: the terminal {!r} (TERM) cannot erase a line, as the display status does."


def open_terminal(
    *,
    history: Path | None = None,
    mask_secrets: Callable[[str], str] = lambda text: text,
    complete: Complete | None = None,
    keys: PromptKeys | None = None,
    display: str = "auto",
    theme: str = "auto",
) -> tuple[Printer, TerminalReader]:
    """Return a printer and a reader for this process.

    The reader is a line editor if the terminal supports one, otherwise it reads whole lines.
    """
    capabilities = detect_capabilities(sys.stdout, os.environ, display=display, theme=theme)
    printer = Printer(sys.stdout, capabilities)
    if display == "status" and capabilities.display != "status":
        name = escape_to_one_line(os.environ.get("TERM", ""))
        printer.print_text(_NO_STATUS.format(name), "warn")
    if capabilities.display != "line" or not sys.stdin.isatty():
        return printer, LineReader(printer)
    from refold.terminal.input.line_editor.prompt_toolkit_reader import PromptToolkitReader

    return printer, PromptToolkitReader(
        printer, history=history, mask_secrets=mask_secrets, complete=complete, keys=keys
    )
