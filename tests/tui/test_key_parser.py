"""Parsing the bytes of a terminal into keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tui.key_parser import Keyboard
from refold.tui.messages import Key, Message, Mouse, Paste, Typed

PIECES = [
    b"\x1b",
    b"\x1b[",
    b"\x1b[200~",
    b"\x1b[201~",
    b"\x1b]11",
    b"\x1bP1",
    b";",
    b"u",
    b"\x07",
]


def parse_keys(*pieces: bytes) -> list[Message]:
    keyboard = Keyboard()
    messages = [message for piece in pieces for message in keyboard.feed(piece, 1.0)]
    return [*messages, *keyboard.flush(1.0)]


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
        (b"\x1b[", Key("alt+[", 1.0)),
        (b"\x1bP", Key("alt+P", 1.0)),
        (b"\x1b\x1b[A", Key("alt+up", 1.0)),
        (b"\x1b\x18", Key("alt+ctrl+x", 1.0)),
        (b"\x1b[[A", Key("f1", 1.0)),
        (b"\x1b[5^", Key("ctrl+pageup", 1.0)),
        (b"\x1b[5$", Key("shift+pageup", 1.0)),
        (b"\x1b[1;2R", Key("shift+f3", 1.0)),
    ],
)
def test_a_key_sequence_is_parsed_the_same_in_one_piece_or_byte_by_byte(
    data: bytes, meant: Message
) -> None:
    assert parse_keys(data) == [meant]
    assert parse_keys(*(data[start : start + 1] for start in range(len(data)))) == [meant]


def test_letters_read_together_are_one_typed_message() -> None:
    assert parse_keys(b"hello") == [Typed("hello", 1.0)]
    assert parse_keys(b"a\rb") == [Typed("a", 1.0), Key("enter", 1.0), Typed("b", 1.0)]


def test_esc_pressed_twice_is_parsed_as_two_esc_keys() -> None:
    keyboard = Keyboard()

    first = [*keyboard.feed(b"\x1b", 1.0), *keyboard.flush(1.0)]
    second = [*keyboard.feed(b"\x1b", 1.1), *keyboard.flush(1.1)]

    assert (first, second) == ([Key("esc", 1.0)], [Key("esc", 1.1)])


def test_invalid_utf_8_bytes_are_not_parsed_as_keys() -> None:
    assert parse_keys(b"\xff\xfe") == []


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        (b"\x1b[27u", Key("esc", 1.0)),
        (b"\x1b[13;2u", Key("shift+enter", 1.0)),
        (b"\x1b[13;5u", Key("ctrl+enter", 1.0)),
        (b"\x1b[13;3u", Key("alt+enter", 1.0)),
        (b"\x1b[99;5u", Key("ctrl+c", 1.0)),
        (b"\x1b[1089::99;5u", Key("ctrl+c", 1.0)),  # the same key of a Russian keyboard
        (b"\x1b[45:95;6u", Key("ctrl+_", 1.0)),
        (b"\x1b[105;5u", Key("tab", 1.0)),
        (b"\x1b[9;2u", Key("shift+tab", 1.0)),
        (b"\x1b[98;3u", Key("alt+b", 1.0)),
        (b"\x1b[44:60;4u", Key("alt+<", 1.0)),
        (b"\x1b[127;5u", Key("alt+backspace", 1.0)),
        (b"\x1b[99;133u", Key("ctrl+c", 1.0)),  # Num Lock is on
        (b"\x1b[99;9u", Key("super+c", 1.0)),
        (b"\x1b[57414u", Key("enter", 1.0)),
        (b"\x1b[57402u", Typed("3", 1.0)),
        (b"\x1b[13;1:1u", Key("enter", 1.0)),
        (b"\x1b[27;2;13~", Key("shift+enter", 1.0)),  # modifyOtherKeys
        (b"\x1b[27;5;13~", Key("ctrl+enter", 1.0)),
        (b"\x1b[27;5;99~", Key("ctrl+c", 1.0)),
    ],
)
def test_a_key_has_one_name_in_all_terminal_encodings(data: bytes, meant: Message) -> None:
    assert parse_keys(data) == [meant]
    assert parse_keys(*(data[start : start + 1] for start in range(len(data)))) == [meant]


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[?62;4c",
        b"\x1b[?1u",
        b"\x1b[12;40R",
        b"\x1b[I",
        b"\x1b[99;5:3u",  # released
        b"\x1b[57430u",  # a key for the volume
        b"\x1b[M !!",
        b"\x1b[<35;3;5M",
        b"\x1b[>1;2;3q",
        b"\x1b[1;2;3;4;5;6;7;8;9z",
        b"\x1b[55555555555u",
        b"\x1b[56000u",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1bP>|kitty(0.40.0)\x1b\\",
        b"\x1b_Gi=1;OK\x1b\\",
    ],
)
def test_a_report_of_the_terminal_is_not_parsed_as_a_key(data: bytes) -> None:
    assert parse_keys(data + b"a") == [Typed("a", 1.0)]
    assert parse_keys(*(data[start : start + 1] for start in range(len(data))), b"a") == [
        Typed("a", 1.0)
    ]


def test_a_key_sequence_received_slowly_is_parsed_as_one_key() -> None:
    keyboard = Keyboard()

    slow = [*keyboard.feed(b"\x1b[1;", 1.0), *keyboard.flush(1.1)]
    rest = keyboard.feed(b"5A", 1.2)

    assert (slow, rest) == ([], [Key("ctrl+up", 1.2)])


@given(st.lists(st.binary(max_size=12) | st.sampled_from(PIECES), max_size=12))
def test_keys_are_parsed_after_any_sequence_of_bytes(pieces: list[bytes]) -> None:
    keyboard = Keyboard()
    for piece in pieces:
        keyboard.feed(piece, 1.0)
        keyboard.flush(1.0)

    keyboard.feed(b"\x1b\\\x1b[201~zzz", 2.0)  # the end of whatever was begun
    keyboard.flush(2.0)

    assert keyboard.feed(b"a", 3.0) == [Typed("a", 3.0)]
