"""The display and colours that a terminal gets, and replacements for characters that it lacks."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from refold.console import colours
from refold.console.ascii_fallback import replace_unencodable
from refold.console.capabilities import (
    TerminalCapabilities,
    choose_display,
    detect_capabilities,
)
from refold.console.printer import Printer
from refold.console.terminfo import Terminfo
from refold.terminal.screen.status_line import PlainProgress
from refold.views.styled import Line

XTERM = Terminfo(back="\r\x1b[K", up="\x1b[A", common=True)
VT52 = Terminfo(back="\r\x1bK", up="\x1bA")
PAPER = Terminfo()
EIGHT = tuple(f"<ink {n}>" for n in range(8))


@pytest.mark.parametrize(
    ("wanted", "term", "known", "shown"),
    [
        ("auto", "xterm", XTERM, "line"),
        ("auto", "xterm-of-tomorrow", None, "line"),
        ("auto", "vt52", VT52, "status"),
        ("auto", "teletype", PAPER, "plain"),
        ("auto", "dumb", None, "plain"),
        ("auto", "unknown", None, "plain"),
        ("auto", "", None, "plain"),
        ("plain", "xterm", XTERM, "plain"),
        ("status", "xterm", XTERM, "status"),
        ("status", "teletype", PAPER, "plain"),
        ("status", "dumb", None, "plain"),
        ("line", "vt52", VT52, "line"),
    ],
)
def test_the_display_depends_on_the_terminal_and_the_setting(
    wanted: str, term: str, known: Terminfo | None, shown: str
) -> None:
    assert choose_display(wanted, {"TERM": term}, known) == shown


def test_output_that_is_not_a_terminal_gets_plain_text_without_colours() -> None:
    for wanted in ("auto", "line", "status", "plain"):
        capabilities = detect_capabilities(io.StringIO(), {"TERM": "xterm"}, display=wanted)

        assert (capabilities.display, capabilities.color, capabilities.moves) == (
            "plain",
            False,
            False,
        )


@pytest.mark.parametrize(
    ("environ", "has", "painted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"FORCE_COLOR": "3"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "false"}, True, False),
    ],
)
def test_environment_variables_override_the_colour_setting(
    environ: Mapping[str, str], has: bool, painted: bool
) -> None:
    assert colours.uses_colors(environ, has_colors=has) is painted


@pytest.mark.parametrize(
    ("codes", "theme", "colors", "expected"),
    [
        ("1;34", "auto", 256, "1;34"),
        ("1;34", "mono", 256, "1"),
        ("36;2", "mono", 256, "2"),
        ("38;5;94", "mono", 256, ""),
        ("31;47", "mono", 8, ""),
        ("4", "mono", 8, "4"),
        ("1;34", "dark", 256, "1;38;5;111"),
        ("1;34", "dark", 16, "1;94"),
        ("1;34", "dark", 8, "1;34"),
        ("33", "light", 256, "38;5;94"),
        ("33", "light", 16, "35"),
        ("93", "light", 8, "35"),
        ("36;2", "light", 256, "38;5;24;2"),
        ("2", "dark", 256, "38;5;246"),
        ("2", "dark", 8, "2"),
        ("2", "dark-contrast", 256, "38;5;252"),
        ("2", "dark-contrast", 16, ""),
        ("36;2", "light-contrast", 16, "36"),
        ("33", "light-contrast", 16, "35"),
        ("31", "dark-daltonized", 16, "93"),
        ("32;7", "dark-daltonized", 16, "94;7"),
        ("32", "light-daltonized", 8, "34"),
        ("31", "dark-daltonized", 256, "38;5;208"),
        ("38;5;94", "light", 256, "38;5;94"),
    ],
)
def test_a_theme_replaces_colour_codes_with_its_own(
    codes: str, theme: str, colors: int, expected: str
) -> None:
    assert colours.to_theme(codes, theme, colors) == expected


def test_styles_use_the_strings_of_the_terminfo_entry() -> None:
    known = Terminfo(marks={"1": "<bold>", "2": ""}, inks=EIGHT)

    terminfos = [
        colours.terminfo_sequences(codes, known) for codes in ("1;34", "36;2", "91", "4")
    ]

    assert terminfos == ["<bold><ink 4>", "<ink 6>", "<ink 1>", ""]
    assert colours.terminfo_sequences("1;34", Terminfo()) == ""


@pytest.mark.parametrize(
    ("text", "encoding", "written"),
    [
        ("“so …” › 中", "utf-8", "“so …” › 中"),
        ("“so …” › 中", "ascii", '"so ..." > \\u4e2d'),
        ("naïve › é", "latin-1", "naïve > é"),
        ("│ a │\n└───", "ascii", "| a |\n|---"),
        ("… é", "no-such-codec", "... \\xe9"),
    ],
)
def test_characters_that_an_encoding_lacks_are_replaced_by_ascii(
    text: str, encoding: str, written: str
) -> None:
    assert replace_unencodable(text, encoding) == written


@pytest.mark.parametrize(
    ("environ", "encoding"),
    [
        ({"LC_ALL": "C"}, "ascii"),
        ({"LANG": "POSIX"}, "ascii"),
        ({"LC_ALL": "", "LANG": "C"}, "ascii"),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, "utf-8"),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, "utf-8"),
        ({}, "utf-8"),
    ],
)
def test_the_encoding_follows_the_locale_of_the_environment(
    environ: Mapping[str, str], encoding: str
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    assert detect_capabilities(out, environ).encoding == encoding


@pytest.mark.parametrize("columns", [1, 3, 9, 80])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_status_fits_on_one_line_however_narrow(columns: int, encoding: str) -> None:
    out = io.StringIO()
    capabilities = TerminalCapabilities(
        moves=True, width=lambda: columns, erase_line_sequence="<", encoding=encoding
    )

    long: Line = (("dim", "⠋ running … 中文 and a long time of it"), ("dim", " and on"))
    Printer(out, capabilities).show_status(long)

    drawn = out.getvalue().removeprefix("<")
    assert len(drawn) < columns
    assert drawn.isascii() or encoding == "utf-8"


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("thumbs \U0001f44d\U0001f3fd up", "thumbs \U0001f44d up"),  # a skin tone
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467!", "\U0001f468!"),  # a family
        ("\u2764\ufe0f and 1\ufe0f\u20e3", "\u2764 and 1"),
        ("\U0001f1e9\U0001f1ea 中文", "\U0001f1e9\U0001f1ea 中文"),  # a flag: no doubt
    ],
)
def test_status_has_no_emoji_whose_width_terminals_disagree_about(
    text: str, drawn: str
) -> None:
    out = io.StringIO()
    capabilities = TerminalCapabilities(
        moves=True, width=lambda: 60, erase_line_sequence="<", encoding="utf-8"
    )

    Printer(out, capabilities).show_status((("plain", text),))

    assert out.getvalue() == f"<{drawn}"


def test_after_a_resize_a_wrapped_status_is_erased_from_every_row() -> None:
    out, width = io.StringIO(), [60]
    capabilities = TerminalCapabilities(
        moves=True,
        width=lambda: width[0],
        erase_line_sequence="<",
        cursor_up_sequence="^",
        reflows=True,
    )
    paper = Printer(out, capabilities)

    paper.show_status((("plain", "x" * 50),))
    width[0] = 20
    paper.print_text("done")

    assert out.getvalue() == "<" + "x" * 50 + "<^<^<" + "done\n"


def test_a_narrower_terminal_that_cuts_lines_erases_one_row() -> None:
    out, width = io.StringIO(), [60]
    paper = Printer(
        out,
        TerminalCapabilities(
            moves=True,
            width=lambda: width[0],
            erase_line_sequence="<",
            cursor_up_sequence="^",
        ),
    )

    paper.show_status((("plain", "x" * 50),))
    width[0] = 20
    paper.clear_status()

    assert out.getvalue() == "<" + "x" * 50 + "<"


PROBE = """
import sys
from refold.console.terminfo import read_terminfo
found = read_terminfo(sys.argv[1])
print(None if found is None else (found.back, found.common, found.colors))
print(read_terminfo(sys.argv[2]) == found)
"""


def test_plain_progress_is_printed_at_growing_intervals() -> None:
    out, now = io.StringIO(), [0.0]
    paper = Printer(out, TerminalCapabilities())
    aloud = PlainProgress(paper, lambda: now[0])

    def seconds(until: int) -> None:
        while now[0] < until:
            now[0] += 1
            aloud.show((("accent", "/"), ("dim", f" running {now[0]:.0f} s  tick")))

    paper.print_text("begun")
    seconds(45)
    paper.print_text("news")
    seconds(56)
    paper.print_pieces([("plain", "half a line")])
    seconds(99)

    lines = [f"running {at} s  tick" for at in (11, 21, 41)]
    assert out.getvalue().splitlines() == [
        "begun",
        *lines,
        "news",
        "running 56 s  tick",
        "half a line",
    ]


def test_no_plain_progress_is_printed_where_a_status_line_shows_it() -> None:
    out, now = io.StringIO(), [0.0]
    aloud = PlainProgress(
        Printer(out, TerminalCapabilities(moves=True, erase_line_sequence="<")),
        lambda: now[0],
    )

    for now[0] in (0.0, 20.0, 90.0):
        aloud.show((("accent", "/"), ("dim", " running")))

    assert out.getvalue() == "</ running"


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("vt100", "('\\r\\x1b[K', True, 0)"),
        ("linux", "('\\r\\x1b[K', True, 8)"),
        ("dumb", "('', False, 0)"),
        ("no-such-terminal", "None"),
        ("../../etc/passwd", "None"),
    ],
)
def test_terminfo_strings_are_read_from_the_database_without_padding(
    term: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, term, term],
        capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ),
    )  # fmt: skip

    assert (done.stdout.splitlines(), done.stderr) == ([expected, "True"], "")


def test_a_status_is_redrawn_from_its_first_changed_row() -> None:
    out = io.StringIO()
    look_ = TerminalCapabilities(
        moves=True, erase_line_sequence="<", cursor_up_sequence="^", height=lambda: 24
    )
    printer = Printer(out, look_)
    one, two, three = ((("plain", text),) for text in ("one", "two", "three"))

    printer.show_status(one, two)
    printer.show_status(one, three)
    printer.show_status(three)
    printer.show_status(three, two)
    printer.print_text("done")

    assert out.getvalue() == (
        "<one\ntwo"  # drawn
        "<three"  # only its last row
        "<^<three"  # one row less
        "<three\ntwo"  # one row more: the cursor stood in its only row
        "<^<done\n"  # nothing stays
    )


@pytest.mark.parametrize(
    ("up", "height", "rows"),
    [("^", 24, ["a", "b", "c"]), ("^", 5, ["b", "c"]), ("", 24, ["c"]), ("^", 0, ["c"])],
    ids=["all", "low", "never up", "height unknown"],
)
def test_a_status_has_only_as_many_rows_as_can_be_erased(
    up: str, height: int, rows: list[str]
) -> None:
    out = io.StringIO()
    look_ = TerminalCapabilities(
        moves=True, erase_line_sequence="<", cursor_up_sequence=up, height=lambda: height
    )

    Printer(out, look_).show_status(*[(("plain", text),) for text in "abc"])

    assert out.getvalue().removeprefix("<").split("\n") == rows


def luminance(number: int) -> float:
    """Relative luminance (WCAG 2) of one of xterm's 256 colours, from 16 on."""
    if number >= 232:
        levels = [8 + 10 * (number - 232)] * 3
    else:
        cube = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
        levels = [55 + 40 * item if item else 0 for item in cube]
    linear = [
        x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4
        for x in (level / 255 for level in levels)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", list(colours.COLOR_PALETTES))
def test_each_colour_of_a_theme_has_the_contrast_that_the_docs_promise(theme: str) -> None:
    dark_gray, white = luminance(234), luminance(231)  # #1c1c1c, #ffffff
    least = 7.0 if theme.endswith("-contrast") else 4.5
    for number in colours.COLOR_PALETTES[theme]:
        if theme.startswith("dark"):
            contrast = (luminance(number) + 0.05) / (dark_gray + 0.05)
        else:
            contrast = (white + 0.05) / (luminance(number) + 0.05)
        assert contrast >= least, (theme, number)


def test_added_and_deleted_lines_differ_for_people_with_red_green_blindness() -> None:
    for theme in ("dark-daltonized", "light-daltonized"):
        for colors in (16, 256):
            added, deleted = (colours.to_theme(c, theme, colors) for c in ("32", "31"))
            blue = {"38;5;75", "38;5;25", "94", "34"}
            assert added in blue
            assert deleted not in blue
