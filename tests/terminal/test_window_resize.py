"""A window that becomes narrower while something is typed in it leaves no second prompt."""

import io

import anyio
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from refold.console.capabilities import TerminalCapabilities
from refold.terminal.input.line_editor.drawing import erase_reflowed_rows

UP = "\x1b[A"
TYPED = 148  # letters: with the prompt one row of 80 cells, and one of 70
DRAWN = "\x1b[70D\x1b[A"  # back to where it was drawn: 70 to the left, and one up


def erase_sequence(columns: int, look: TerminalCapabilities) -> str:
    """Return the sequence that erases what was typed, in a terminal of this many columns."""
    out, width, texts = io.StringIO(), [80], list[str]()

    def narrower(app: Application[str]) -> None:
        if len(app.current_buffer.text) == TYPED and not texts:
            width[0], before = columns, len(out.getvalue())
            app.renderer.erase()
            texts.append(out.getvalue()[before:])
            app.exit(result="")

    async def typing() -> None:
        with create_pipe_input() as keys:
            session = PromptSession[str](
                "› ",
                input=keys,
                output=Vt100_Output(out, lambda: Size(24, width[0]), enable_cpr=False),
            )
            erase_reflowed_rows(session.app, look)
            session.app.after_render += narrower
            keys.send_text("x" * TYPED)
            await session.prompt_async()

    anyio.run(typing)
    return texts[0].partition("\x1b[J")[0]


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        (80, ""),
        (100, ""),
        (70, "\x1b[A"),
        (69, "\x1b[2A"),
        (39, "\x1b[3A"),
        (20, "\x1b[6A"),
    ],
)
def test_a_resize_erases_all_rows_of_the_wrapped_drawing(columns: int, more: str) -> None:
    assert (
        erase_sequence(columns, TerminalCapabilities(cursor_up_sequence=UP, reflows=True))
        == more + DRAWN
    )


def test_without_reflow_only_the_drawn_rows_are_erased() -> None:
    assert erase_sequence(20, TerminalCapabilities(cursor_up_sequence=UP)) == DRAWN
