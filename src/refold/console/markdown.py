"""Renders the model's Markdown for the terminal.

Without colours, the text is laid out, but the marks of emphasis stay. On the display `plain`
the text is unchanged.
"""

from typing import TYPE_CHECKING

from refold.console.printer import Printer
from refold.views.escape import visible

if TYPE_CHECKING:
    from refold.views.markdown.renderer import MarkdownRenderer


def renderer_for(printer: Printer) -> "MarkdownRenderer":
    """Return a renderer for text that arrives in pieces.

    If the terminal's width changes, the new width applies from the next block on. Long lines of
    code are wrapped by the terminal, so that they can be copied as one line.
    """
    # imported with the first text, to start faster
    from refold.views.markdown.renderer import MarkdownRenderer

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
    """Render and print a complete Markdown text."""
    prose = renderer_for(printer)
    printer.print_pieces([*prose.add(visible(text)), *prose.end()])
