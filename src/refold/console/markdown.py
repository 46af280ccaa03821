"""Renders Markdown of the model for this terminal.

Without colours the marks of emphasis stay, but the layout is done; on a plain display the text stays
as it was written.
"""

from typing import TYPE_CHECKING

from refold.console.printer import Printer
from refold.views.escape import visible

if TYPE_CHECKING:
    from refold.views.markdown.renderer import MarkdownRenderer


def renderer_for(printer: Printer) -> "MarkdownRenderer":
    """Return a renderer for streaming text. A new width applies from the next block on.

    Long lines of code are left to the terminal: it copies each as one line, without a mark.
    """
    from refold.views.markdown.renderer import (
        MarkdownRenderer,  # imported with the first text, to start faster
    )

    capabilities = printer.capabilities
    return MarkdownRenderer(
        lambda: printer.free_columns if capabilities.moves else 0,
        marks=capabilities.moves or capabilities.color,
        styled=capabilities.color and not capabilities.mono,
        links=capabilities.links,
        symbols=capabilities.signs,
        breaks_code=False,
    )


def print_markdown(text: str, printer: Printer) -> None:
    """Print a complete text."""
    prose = renderer_for(printer)
    printer.print_pieces([*prose.add(visible(text)), *prose.end()])
