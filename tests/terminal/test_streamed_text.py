"""A model's words while they come, as each kind of terminal prints them."""

import io

import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.console.markdown import print_markdown
from refold.console.printer import Printer
from refold.terminal.screen.status_line import StatusLine
from refold.terminal.screen.streamed_text import StreamedText
from refold.views.styled import plain_text

SAID = "# A\n\n- **b** and `c`\n  [d](https://e.f)\n"


@pytest.mark.parametrize(
    ("look", "shown"),
    [
        (TerminalCapabilities(), SAID),
        (TerminalCapabilities(moves=True), "# A\n\n• **b** and `c`\n  d (https://e.f)\n"),
        (
            TerminalCapabilities(moves=True, signs=False),
            "# A\n\n- **b** and `c`\n  d (https://e.f)\n",
        ),
        (
            TerminalCapabilities(color=True, moves=True),
            "\x1b[1;4mA\x1b[0m\n\n• \x1b[1mb\x1b[0m and \x1b[36mc\x1b[0m\n"
            "  \x1b[4md\x1b[0m\x1b[2m (https://e.f)\x1b[0m\n",
        ),
        (
            TerminalCapabilities(color=True, moves=True, mono=True),
            "\x1b[1m# A\x1b[0m\n\n• **\x1b[1mb\x1b[0m** and `\x1b[36mc\x1b[0m`\n"
            "  \x1b[4md\x1b[0m\x1b[2m (https://e.f)\x1b[0m\n",
        ),
    ],
    ids=["text", "no colours", "ascii", "colours", "no colours but bold"],
)
def test_markdown_is_rendered_by_the_capabilities_of_the_terminal(
    look: TerminalCapabilities, shown: str
) -> None:
    out = io.StringIO()

    print_markdown(SAID, Printer(out, look))

    assert out.getvalue() == shown


def test_text_not_printed_yet_is_shown_in_the_status_line() -> None:
    out = io.StringIO()
    doing = StatusLine(lambda: 0.0, "|")
    speech = StreamedText(Printer(out, TerminalCapabilities(moves=True)), doing)

    speech.print_text("It is *nearly* ")
    speech.print_text("done")
    meanwhile = plain_text([doing.line()])
    text = out.getvalue()
    speech.close()

    assert (meanwhile, text) == ("| writing 0.0 s  It is *nearly* done", "")
    assert (doing.line(), out.getvalue()) == ((), "It is *nearly* done\n")
