"""A place that lies: one clear error, no crash of the session, and nothing of it is believed."""

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from refold.errors import ToolFailed
from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_files import PlaceFiles
from refold.place.port import Real

pytestmark = pytest.mark.slow  # each starts a process

# It greets as a place does. Then it answers the first request with what is in the file of its second
# argument, and reads on; if its third is "leaves", it ends.
_LIAR = """
import json, os, struct, sys
greeting, answer = sys.argv[1].encode(), open(sys.argv[2], "rb").read()
os.write(1, b"refold-place-is-installed\\n")
while not sys.stdin.buffer.raw.readline().startswith(b"# end"): pass
def read():
    head = sys.stdin.buffer.read(8)
    if len(head) < 8: sys.exit()
    one, two = struct.unpack(">II", head)
    return json.loads(sys.stdin.buffer.read(one)), sys.stdin.buffer.read(two)
read()
os.write(1, struct.pack(">II", len(greeting), 0) + greeting)
read()
while answer: answer = answer[os.write(1, answer):]
sys.argv[3] == "leaves" or sys.stdin.buffer.read()
"""
_GREETING: dict[str, object] = {
    "id": 1, "kind": "end", "root": "/srv", "home": "/root", "user": "u", "host": "h",
    "system": "Linux", "python": "3.9", "sandbox": "none", "confines": False, "notice": "",
    "head": "", "instructions": {}, "identity": "",
}  # fmt: skip


def frame(record: object, raw: bytes = b"") -> bytes:
    data = json.dumps(record).encode()
    return struct.pack(">II", len(data), len(raw)) + data + raw


def end(**fields: object) -> bytes:
    return frame({"id": 2, "kind": "end", **fields})


class Liar(Protocol):
    def __call__(self, answer: bytes, then: str = "stays", **greeting: object) -> Pipe: ...


@pytest.fixture
def lying_place(tmp_path: Path) -> Iterator[Liar]:
    with ExitStack() as stack:

        def open_liar(answer: bytes, then: str = "stays", **greeting: object) -> Pipe:
            path = tmp_path / "answer"
            path.write_bytes(answer)
            greets = json.dumps({**_GREETING, **greeting})
            argv = sys.executable, "-S", "-c", _LIAR, greets, str(path), then
            pipe = Pipe(PlaceAddress("cmd:liar", "cmd", argv, "/srv"), PlaceSettings(), {})
            stack.callback(pipe.close)
            return pipe

        yield open_liar


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (frame({"id": 2, "kind": "end"})[:9], "leaves"),
        (struct.pack(">II", 2**32 - 1, 0), "stays"),
        (struct.pack(">II", 2, 2**31) + b"{}", "stays"),
        (frame([1, 2]), "stays"),
        (struct.pack(">II", 4, 0) + b"\xff\xfe{}", "stays"),
        (struct.pack(">II", 100_000, 0) + b"[" * 100_000, "stays"),
        (end(items="no list", ignored=False), "stays"),
        (end(items=[["..", "file", 1, 1, False]], ignored=False), "stays"),
        (end(items=[["a/b", "file", 1, 1, False]], ignored=False), "stays"),
        (end(items=[["a", "socket?", 1, 1, False]], ignored=False), "stays"),
        (frame({"id": 2, "kind": "failed", "text": {"a": ["b"]}}), "stays"),
    ],
    ids=range(11),
)
def test_an_invalid_answer_from_elsewhere_is_one_tool_error(
    lying_place: Liar, answer: bytes, then: str
) -> None:
    files = PlaceFiles(lying_place(answer, then), "/srv")

    with pytest.raises(ToolFailed):
        files.items(Real("/srv"))


def test_unrequested_answers_from_elsewhere_are_dropped(lying_place: Liar) -> None:
    flood = b"".join(
        frame({"id": number, "kind": kind}, b"x" * 100)
        for number in (None, "2", -1, 99, 1)
        for kind in ("end", "lost", None, ["output"])
    )
    good = end(items=[["a", "file", 1, 1, False]], ignored=False)
    lost = frame({"id": 2, "kind": "lost"})
    files = PlaceFiles(lying_place(flood * 50 + lost + good + good), "/srv")

    assert [item.name for item in files.items(Real("/srv"))] == ["a"]


@pytest.mark.parametrize("real", ["srv", "/srv/../etc", "/a\0b", "/" + "x" * 5_000, ""])
def test_an_invalid_path_in_an_answer_from_elsewhere_is_refused(
    lying_place: Liar, real: str
) -> None:
    looked = end(
        real=real,
        path_kind="file",
        size=-1,
        in_repository=False,
        top="",
        excludes="",
        named_by_git=False,
    )
    files = PlaceFiles(lying_place(looked), "/srv")

    with pytest.raises(ToolFailed, match="a path that cannot be one"):
        files.real("a")


@pytest.mark.parametrize("root", ["srv", "/srv/..", ""])
def test_an_invalid_root_in_the_greeting_from_elsewhere_is_refused(
    lying_place: Liar, root: str
) -> None:
    with pytest.raises(ToolFailed, match="a path that cannot be one"):
        assert lying_place(b"", root=root).greeting


def test_control_characters_in_the_greeting_from_elsewhere_are_escaped(
    lying_place: Liar,
) -> None:
    greeting = lying_place(b"", user="\x1b[31mroot", host="h" * 10_000).greeting

    assert (greeting.user, len(greeting.host)) == ("\\x1b[31mroot", 500)


def test_file_content_from_elsewhere_longer_than_requested_is_refused(
    lying_place: Liar,
) -> None:
    answer = frame({"id": 2, "kind": "end"}, b"x" * 1_000)
    files = PlaceFiles(lying_place(answer), "/srv")

    with pytest.raises(ToolFailed, match="more bytes than were requested"):
        files.read(Real("/srv/a"), 10)
