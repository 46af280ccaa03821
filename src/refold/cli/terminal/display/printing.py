"""A model's words, as this terminal can print them.

Where there are no colours but a line can be drawn, Markdown is laid out and its marks of
emphasis stay; where there is nothing but text, the words stay as they were written.
"""

from typing import TYPE_CHECKING

from refold.cli.terminal.display.paper import Paper
from refold.views.escape import visible

if TYPE_CHECKING:
    from refold.views.prose import Prose


def words_on(paper: Paper) -> "Prose":
    """For words that come in pieces. A new width counts from the next block on."""
    from refold.views.prose import Prose  # before the first words a start does without

    look = paper.look
    return Prose(
        lambda: paper.room if look.moves else 0,
        marks=look.moves or look.color,
        styled=look.color and not look.mono,
        links=look.links,
        signs=look.signs,
    )


def print_words(text: str, paper: Paper) -> None:
    """Words that are all there."""
    prose = words_on(paper)
    paper.pieces([*prose.add(visible(text)), *prose.end()])
