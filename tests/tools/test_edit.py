"""Changing files: only what was read, only what was meant, every other byte unchanged."""

import os
from hashlib import sha256

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.contract import Reply
from refold.tools.edit import edit_file, find_places, write_file
from refold.tools.read import read_file
from refold.tools.text_files import EditableText, decode_text
from refold.values.display import Diff, Note


def write_known_file(place: ToolDirectory, name: str, content: bytes) -> None:
    """A file the session has read."""
    (place.directory / name).write_bytes(content)
    anyio.run(place.use, read_file, {"path": name})


def get(place: ToolDirectory, name: str) -> bytes:
    return (place.directory / name).read_bytes()


def edit(place: ToolDirectory, **arguments: object) -> Reply:
    return anyio.run(place.use, edit_file, {"path": "a"} | arguments)


def write(place: ToolDirectory, content: str) -> Reply:
    return anyio.run(place.use, write_file, {"path": "a", "content": content})


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_an_edit_returns_a_diff_and_a_one_line_summary(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"one\ntwo\nthree\n")

    reply = edit(place, old="two", new="2\n2")

    before, after = b"one\ntwo\nthree\n", b"one\n2\n2\nthree\n"
    text = "@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2\n three"
    path = str(place.directory / "a")
    assert reply == Reply(
        "Edited a: line 2 (+2 -1).",
        (Diff(path, "changed", text, digest(before), digest(after)),),
    )
    assert get(place, "a") == after


def test_write_file_creates_missing_directories(place: ToolDirectory) -> None:
    reply = anyio.run(place.use, write_file, {"path": "b/c/d", "content": "one\ntwo"})

    text = "@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file"
    path = str(place.directory / "b/c/d")
    assert reply == Reply(
        "Created b/c/d, 2 lines.", (Diff(path, "created", text, "", digest(b"one\ntwo")),)
    )
    assert get(place, "b/c/d") == b"one\ntwo"


def test_file_written_or_edited_here_can_be_changed_again(place: ToolDirectory) -> None:
    write(place, "one")
    edit(place, old="one", new="two")
    write(place, "three")

    assert get(place, "a") == b"three"


def test_a_file_that_was_not_read_is_not_changed(place: ToolDirectory) -> None:
    (place.directory / "a").write_bytes(b"one")

    for change in (lambda: edit(place, old="one", new="two"), lambda: write(place, "two")):
        with pytest.raises(
            ToolFailed, match=r"a was not read in this session\. Read it first"
        ):
            change()

    assert get(place, "a") == b"one"


def test_a_file_changed_since_it_was_read_is_not_changed(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"one")
    (place.directory / "a").write_bytes(b"one, by somebody else")

    for change in (lambda: edit(place, old="one", new="two"), lambda: write(place, "two")):
        with pytest.raises(ToolFailed, match="a has changed since you last read it"):
            change()

    assert get(place, "a") == b"one, by somebody else"


def test_a_file_that_was_read_can_be_edited_through_a_link(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"one")
    os.symlink("a", place.directory / "link")

    anyio.run(place.use, edit_file, {"path": "link", "old": "one", "new": "two"})

    assert get(place, "a") == b"two"
    assert (place.directory / "link").is_symlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"old": "", "new": "x"}, "old is empty"),
        ({"old": "one", "new": "one"}, "old and new are the same"),
        ({"old": "e", "new": "x"}, "old occurs 4 times in a, at lines 1, 3, 3, 4."),
        ({"old": "2\ttwo", "new": "x"}, "It begins with the line numbers"),
        ({"old": "zzzzzzzzzz", "new": "x"}, "No similar text found"),
        ({"old": "one\n  two", "new": "x"}, "at lines 1-2. It differs only in white space.\n1\tone\n2\ttwo"),
        ({"old": "thrice\nfive", "new": "x"}, "The nearest text is at lines 3-4.\n3\tthree\n4\tfive"),
    ],
)  # fmt: skip
def test_an_ambiguous_or_unmatched_edit_is_refused_with_a_hint(
    place: ToolDirectory, arguments: dict[str, str], message: str
) -> None:
    write_known_file(place, "a", b"one\ntwo\nthree\nfive\n")

    with pytest.raises(ToolFailed) as failure:
        edit(place, **arguments)

    assert message in str(failure.value)
    assert get(place, "a") == b"one\ntwo\nthree\nfive\n"


def test_with_the_option_all_every_occurrence_is_replaced(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"x = x\n" * 12)

    reply = edit(place, old="x", new="yy", all=True)

    assert get(place, "a") == b"yy = yy\n" * 12
    assert reply.text.startswith(
        "Edited a: 24 places, lines 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, … ("
    )


@pytest.mark.parametrize("path", ["nothing", "binary", "directory", "pipe"])
def test_edit_refuses_missing_binary_and_special_files(
    place: ToolDirectory, path: str
) -> None:
    (place.directory / "directory").mkdir()
    (place.directory / "binary").write_bytes(b"\0")
    os.mkfifo(place.directory / "pipe")
    place.known[str(place.directory / "binary")] = digest(b"\0")

    with pytest.raises(ToolFailed, match=path):
        edit(place, path=path, old="a", new="b")


def test_edit_that_the_old_encoding_cannot_represent_is_refused(
    place: ToolDirectory,
) -> None:
    write_known_file(place, "a", "gr\xfcn\n".encode("latin-1"))

    with pytest.raises(ToolFailed, match="a is Latin-1, which cannot hold '☂'"):
        edit(place, old="grün", new="☂")

    assert get(place, "a") == b"gr\xfcn\n"


def test_content_with_a_lone_surrogate_is_refused(place: ToolDirectory) -> None:
    """No JSON brings one, but a program that calls the tool may."""

    async def main() -> None:
        await write_file.run(
            path="a", content="\ud83d", files=place.files, known={}, unread=()
        )

    with pytest.raises(ToolFailed, match="content holds half a character"):
        anyio.run(main)


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"1\r\n2\r\n", "3\n4\n", b"3\r\n4\r\n"),
        (b"\xef\xbb\xbf1\n", "2\n", b"\xef\xbb\xbf2\n"),
        (b"\xff\xfe1\x00", "☂", b"\xff\xfe\x02\x26"),
        (b"\xfc", "ü", b"\xfc"),
        (b"\xfc", "☂", "☂".encode()),
        (b"1\r\n", "a\r\nb\n", b"a\r\nb\n"),
        (b"1\n", "", b""),
    ],
)
def test_an_overwritten_file_keeps_its_line_ends_and_encoding(
    place: ToolDirectory, before: bytes, content: str, after: bytes
) -> None:
    write_known_file(place, "a", before)

    write(place, content)

    assert get(place, "a") == after


def test_writing_the_same_content_does_not_touch_the_file(place: ToolDirectory) -> None:
    write_known_file(place, "a", b"one\r\n")
    before = (place.directory / "a").stat()

    reply = write(place, "one\n")

    assert reply.shown == (Note("a is as it was"),)
    assert (place.directory / "a").stat().st_ino == before.st_ino


def test_binary_data_that_was_read_can_be_replaced_by_text(place: ToolDirectory) -> None:
    (place.directory / "a").write_bytes(b"\0\1")
    place.known[str(place.directory / "a")] = digest(b"\0\1")

    reply = write(place, "one")

    assert get(place, "a") == b"one"
    assert isinstance(reply.shown[0], Diff)
    assert reply.shown[0].text == "@@ the encoding was changed from binary data to UTF-8 @@"


# Texts that a model can read and write, in any kind of file.
LETTERS = st.text(st.sampled_from("ab\té☂\U0001f600\x85\u2028\r"), max_size=4)
LINES = st.lists(
    LETTERS.filter(lambda line: not line.endswith("\r")), min_size=1, max_size=8
)
CODECS = st.sampled_from(
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
)  # fmt: skip


@given(LINES, st.sampled_from(["\n", "\r\n"]), CODECS, st.data())
def test_an_edit_and_its_reverse_restore_the_same_bytes(
    lines: list[str], end: str, codec: tuple[str, bytes], data: st.DataObject
) -> None:
    encoding, mark = codec
    content = mark + end.join(lines).encode(encoding)
    plain = "\n".join(lines)
    start = data.draw(st.integers(0, len(plain)))
    old = plain[start : data.draw(st.integers(start, len(plain)))]
    new = (
        "<"
        + data.draw(LETTERS).rstrip("\r")
        + data.draw(st.sampled_from(["", "\n", "\nz\n"]))
        + ">"
    )
    assume(
        old and plain.count(old) == 1 and "\r" not in (old[-1], old[0], plain[start - 1])
    )

    there = edit_text(content, old, new)

    assert there == mark + plain.replace(old, new).replace("\n", end).encode(encoding) or (
        "\n" not in plain  # a file of one line shows no line end: LF is taken
    )
    # If the last line end is deleted, its kind is forgotten.
    assume(
        plain.replace(old, new).count(new) == 1
        and ("\n" in plain) == ("\n" in plain.replace(old, new))
    )
    assert edit_text(there, new, old) == content


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["\n", "\r\n"])), min_size=2)
)
def test_in_a_file_of_mixed_line_ends_only_the_edited_lines_change(
    lines: list[tuple[str, str]],
) -> None:
    text = "start\n" + "".join(letter + end for letter, end in lines) + "X\r\nY\nend"

    there = edit_text(text.encode(), "X\nY", "1\n2")

    assert there == text.replace("X\r\nY", "1\r\n2").encode()


@given(st.binary(max_size=60))
def test_decoding_and_encoding_a_file_gives_the_same_bytes(content: bytes) -> None:
    text = decode_text(content)

    assert text is None or text.encode(text.text) == content


@given(
    st.binary(min_size=1, max_size=40).filter(lambda b: b"@" not in b and b"\0" not in b)
)
def test_undecodable_bytes_around_an_edit_are_preserved(content: bytes) -> None:
    whole = content + b"@" + content
    text = decode_text(whole)
    assume(text is not None)

    assert edit_text(whole, "@", "!") == whole.replace(b"@", b"!")


def edit_text(content: bytes, old: str, new: str) -> bytes:
    """Return what edit_file does to the content of a file, without the file."""
    was = decode_text(content)
    assert isinstance(was, EditableText)
    places = find_places(was.plain, old, new, "a", all=False)
    return was.encode(was.replace_at(places, old, new))
