"""From bytes to keys."""

import pytest

from refold.tui.key_parser import Keyboard
from refold.tui.messages import Key, Message, Mouse, Paste, Typed


def heard(*pieces: bytes) -> list[Message]:
    keyboard = Keyboard()
    found = [each for piece in pieces for each in keyboard.feed(piece, 1.0)]
    return [*found, *keyboard.flush(1.0)]


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        (b"a", Typed("a", 1.0)),
        ("日".encode(), Typed("日", 1.0)),
        (b"\r", Key("enter", 1.0)),
        (b"\t", Key("tab", 1.0)),
        (b"\x1b", Key("esc", 1.0)),
        (b"\x1b\r", Key("alt+enter", 1.0)),
        (b"\x1bb", Key("alt+b", 1.0)),
        (b"\x1b[A", Key("up", 1.0)),
        (b"\x1b[1;5A", Key("ctrl+up", 1.0)),
        (b"\x1b[1;2B", Key("shift+down", 1.0)),
        (b"\x1b[5~", Key("pageup", 1.0)),
        (b"\x1b[Z", Key("shift+tab", 1.0)),
        (b"\x1bOR", Key("f3", 1.0)),
        (b"\x0f", Key("ctrl+o", 1.0)),
        (b"\x7f", Key("backspace", 1.0)),
        (b"\x1b\x7f", Key("alt+backspace", 1.0)),
        (b"\n", Key("ctrl+j", 1.0)),
        (b"\x1f", Key("ctrl+_", 1.0)),
        (b"\x1b[<0;3;5M", Mouse("press", 2, 4)),
        (b"\x1b[<64;3;5M", Mouse("wheel_up", 2, 4)),
        (b"\x1b[<65;3;5M", Mouse("wheel_down", 2, 4)),
        (b"\x1b[200~two\nlines\x1b[201~", Paste("two\nlines", 1.0)),
    ],
)
def test_a_key_is_known_in_one_piece_and_in_several(data: bytes, meant: Message) -> None:
    assert heard(data) == [meant]
    assert heard(*(data[at : at + 1] for at in range(len(data)))) == [meant]


def test_letters_that_come_at_once_are_one_message() -> None:
    assert heard(b"hello") == [Typed("hello", 1.0)]
    assert heard(b"a\rb") == [Typed("a", 1.0), Key("enter", 1.0), Typed("b", 1.0)]


def test_esc_twice_is_esc_twice() -> None:
    keyboard = Keyboard()

    first = [*keyboard.feed(b"\x1b", 1.0), *keyboard.flush(1.0)]
    second = [*keyboard.feed(b"\x1b", 1.1), *keyboard.flush(1.1)]

    assert (first, second) == ([Key("esc", 1.0)], [Key("esc", 1.1)])


def test_bytes_that_are_no_text_are_no_keys() -> None:
    assert heard(b"\xff\xfe") == []
