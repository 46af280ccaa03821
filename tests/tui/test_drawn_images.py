"""Images in the transcript: how large they are, and what is sent to the terminal."""

import base64
import re
import struct

import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.journal.events.kinds import Delivered, Said, TurnStarted
from refold.tui.image_painter import (
    ImagePainter,
    PlacedImage,
    image_protocol,
    images_in_rows,
)
from refold.tui.image_sizes import CellSize, ImageSize, image_size
from refold.tui.messages import ImagesMeasured, MeasureImages, News, Resized
from refold.tui.model import Model
from refold.tui.painter import Painted, paint
from refold.tui.update import update
from refold.tui.view import Frame, view
from refold.values.messages import Image
from refold.views.styled import ImageRow, Line, line, plain_text
from tests.tui.conftest import png
from tests.tui.sessions import Story

CELL = CellSize(10, 20)
LOOK = TerminalCapabilities(color=True)
WIDTH = 30


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x06JFIF\xff\xdb\x00\x03\x00\xff\xff\xc2\x00\x0b\x08"
    + struct.pack(">HH", 40, 100) + b"\x01\x01\x11\x00"
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (png(100, 40), ImageSize(100, 40, (10, 2))),
        (png(101, 41), ImageSize(101, 41, (11, 3))),
        (JPEG, ImageSize(100, 40, (10, 2))),
        (b"GIF89a" + struct.pack("<HH", 100, 40), ImageSize(100, 40, (10, 2))),
        (
            b"RIFF....WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (39).to_bytes(3, "little"),
            ImageSize(100, 40, (10, 2)),
        ),
        (
            b"RIFF....WEBPVP8L" + bytes(5) + (99 | 39 << 14).to_bytes(4, "little"),
            ImageSize(100, 40, (10, 2)),
        ),
        (
            b"RIFF....WEBPVP8 " + bytes(10) + struct.pack("<HH", 100, 40),
            ImageSize(100, 40, (10, 2)),
        ),
        (png(100, 40)[:20], None),
        (png(0, 40), None),
        (png(1, 100_000), None),
        (png(16_000, 16_000), None),
        (JPEG[:12], None),
        (b"\xff\xd8\xff" + b"\xff\xe0\x00\x00" * 50, None),
        (b"<svg/>", None),
        (b"", None),
    ],
)  # fmt: skip
def test_the_size_of_an_image_is_read_from_its_first_bytes(
    content: bytes, size: ImageSize | None
) -> None:
    assert image_size(content, CELL) == size


@pytest.mark.parametrize(
    ("cells", "room", "whole", "shown"),
    [
        ((10, 2), 70, False, (10, 2)),  # never larger than it is
        ((100, 50), 70, False, (24, 12)),
        ((100, 50), 70, True, (70, 35)),
        ((500, 2), 70, False, (70, 1)),
        ((1, 900), 70, True, (1, 40)),
    ],
)
def test_an_image_is_scaled_to_the_screen_with_its_proportions(
    cells: tuple[int, int], room: int, whole: bool, shown: tuple[int, int]
) -> None:
    assert ImageSize(1, 1, cells).fit(room, whole=whole) == shown


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/t", "KITTY_WINDOW_ID": "1"}, ""),
        ({"TERM": "screen", "TERM_PROGRAM": "iTerm.app"}, ""),
        (
            {"TERM": "xterm-kitty", "TERM_PROGRAM": "iTerm.app", "LC_TERMINAL": "iTerm2"},
            "kitty",
        ),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1", "NVIM": "/tmp/n"}, ""),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "linux"}, ""),
    ],
)
def test_images_are_drawn_only_in_known_terminals(
    environ: dict[str, str], protocol: str
) -> None:
    assert image_protocol(environ) == protocol


def draw_image(protocol: str, content: bytes, **options: str) -> ImagePainter:
    environ = {"kitty": {"TERM": "xterm-kitty"}, "iterm": {"TERM_PROGRAM": "iTerm.app"}}
    painter = ImagePainter({**environ[protocol], **options})
    size = image_size(content, CELL)
    assert size is not None
    painter.set_size("sha", size)
    painter.add_content("sha", content)
    return painter


def rows_of(first: int, last: int, rows: int = 4, columns: int = 5) -> list[Line]:
    """These rows of an image, as a frame has them."""
    return [
        (("plain", "    "), (ImageRow("sha", row, rows, columns), " " * columns))
        for row in range(first, last + 1)
    ]


def frame(*rows: Line) -> Frame:
    return Frame((*rows, *[()] * (8 - len(rows))), (7, 0))


class Terminal:
    """Paints one frame after the other, and records the bytes of each."""

    def __init__(self, images: ImagePainter) -> None:
        self.images, self.before = images, None

    before: Painted | None

    def shows(self, frame: Frame) -> str:
        text = paint(frame, WIDTH, self.before, LOOK, self.images)
        self.before = Painted(frame.rows, frame.cursor, WIDTH)
        return text


def image_commands(text: str) -> list[tuple[str, str]]:
    """Return where an image is placed or deleted in the terminal, and its parameters."""
    return re.findall(r"(?:\x1b\[(\d+;\d+)H)?\x1b_G(a=[pd],[^;\x1b]*)\x1b", text)


def test_kitty_receives_an_image_once_and_then_only_its_position_and_visible_part() -> None:
    content = png(50, 80)
    terminal = Terminal(draw_image("kitty", content))

    first = terminal.shows(frame(line("text"), *rows_of(0, 3)))
    scrolled = terminal.shows(frame(*rows_of(2, 3), line("more")))
    same = terminal.shows(frame(*rows_of(2, 3), line("more")))
    shows = terminal.shows(frame(line("other")))

    matches = re.findall(
        r"\x1b_G(?:a=t,f=100,i=(\d+),q=2,)?m=(\d)(?:,q=2)?;([A-Za-z0-9+/=]+)\x1b", first
    )
    number = matches[0][0]
    assert base64.b64decode("".join(code for _, _, code in matches)) == content
    assert [more for _, more, _ in matches] == [*["1"] * (len(matches) - 1), "0"]
    assert image_commands(first) == [
        ("2;5", f"a=p,i={number},p=1,x=0,y=0,w=50,h=80,c=5,r=4,C=1,q=2")
    ]
    assert image_commands(scrolled) == [
        ("1;5", f"a=p,i={number},p=1,x=0,y=40,w=50,h=40,c=5,r=2,C=1,q=2")
    ]
    assert same == ""
    assert image_commands(shows) == [("", f"a=d,d=i,i={number},p=1,q=2")]
    assert ";a" not in scrolled + shows  # no bytes again


def test_the_same_image_can_be_drawn_in_two_positions() -> None:
    terminal = Terminal(draw_image("kitty", png(50, 80)))

    text = terminal.shows(frame(*rows_of(0, 3, 4), *rows_of(0, 2, 4)))

    assert [
        (position, sequence.split(",")[2]) for position, sequence in image_commands(text)
    ] == [
        ("1;5", "p=1"),
        ("5;5", "p=2"),
    ]


def test_iterm_receives_an_image_when_fully_visible_and_again_after_a_move() -> None:
    content = JPEG
    terminal = Terminal(draw_image("iterm", content))

    part = terminal.shows(frame(line("a"), *rows_of(0, 2)))
    whole = terminal.shows(frame(*rows_of(0, 3), line("b")))
    typed = terminal.shows(Frame(frame(*rows_of(0, 3), line("b")).rows, (7, 3)))
    again = terminal.shows(frame(line("c"), *rows_of(0, 3)))

    code = base64.b64encode(content).decode()
    text = (
        f"\x1b]1337;File=inline=1;size={len(content)};width=5;height=4;"
        f"preserveAspectRatio=0:{code}\x07"
    )
    assert (part.count("1337"), typed.count("1337")) == (0, 0)
    assert f"\x1b[1;5H{text}\x1b8" in whole
    assert f"\x1b[2;5H{text}\x1b8" in again


def test_hostile_bytes_of_an_image_are_never_written() -> None:
    content = png(50, 80) + b"\x1b]0;owned\x07\x1b\\\x1b[2J"

    for protocol in ("kitty", "iterm"):
        text = Terminal(draw_image(protocol, content)).shows(frame(*rows_of(0, 3)))

        assert "owned" not in text
        assert text.count("\x1b[2J") == 1  # our own


def test_images_too_large_or_of_an_unsupported_format_are_not_drawn() -> None:
    kitty = ImagePainter({"TERM": "xterm-kitty"})
    over_ssh = ImagePainter({"TERM": "xterm-kitty", "SSH_CONNECTION": "a b c d"})
    unwanted = ImagePainter({"TERM": "xterm-kitty"}, wanted=False)
    big = png(10, 10) + bytes(300_000)

    assert (kitty.can_draw(png(1, 1)), kitty.can_draw(JPEG)) == (True, False)
    assert (kitty.can_draw(big), over_ssh.can_draw(big)) == (True, False)
    assert unwanted.protocol == ""


def test_forgetting_images_deletes_them_from_the_terminal() -> None:
    images = draw_image("kitty", png(50, 80))
    terminal = Terminal(images)
    terminal.shows(frame(*rows_of(0, 3)))

    assert images.delete_images_sequence() == "\x1b_Ga=d,d=A,q=2\x1b\\"
    assert images.delete_images_sequence() == ""
    assert images.missing_images(rows_of(0, 3)) == ["sha"]


def test_images_of_a_frame_are_found_with_their_visible_rows() -> None:
    assert images_in_rows([line("x"), *rows_of(1, 3), *rows_of(0, 0)]) == [
        PlacedImage("sha", 1, 4, 5, 4, 1, 3),
        PlacedImage("sha", 4, 4, 5, 4, 0, 0),
    ]


def test_an_image_is_shown_as_a_card_until_its_size_is_known() -> None:
    image = Image("sha", "image/png", "plan.png")
    story = Story()
    story.tell(Said("look", images=(image,)), TurnStarted(2), Delivered((2,)))
    model, _ = update(Model(), Resized(40, 12))

    model, wanted = update(model, News(tuple(story.frames)))
    card = [plain_text([row]).rstrip() for row in view(model).rows]
    model, _ = update(model, ImagesMeasured({"sha": ImageSize(50, 60, (5, 3))}))
    rows = view(model).rows

    assert wanted == (MeasureImages(("sha",)),)
    assert "  ▣ plan.png · image/png" in card
    assert [item.rows for item in images_in_rows(rows)] == [3]
    assert images_in_rows(rows)[0].is_whole
