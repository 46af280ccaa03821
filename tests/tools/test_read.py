"""Reading files: lines, files that are not text, and the blobs of long outputs."""

import os
import sys
import zlib
from hashlib import sha256

import anyio
import msgspec
import pytest

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.contract import ImageData, ReadRange, Reply
from refold.tools.read import read_file
from refold.values.display import Note

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def write_file(place: ToolDirectory, name: str, content: bytes) -> None:
    (place.directory / name).write_bytes(content)


def read(place: ToolDirectory, **arguments: object) -> str:
    return anyio.run(place.use, read_file, arguments).text


def test_lines_are_numbered_and_the_hash_of_the_file_is_recorded(
    place: ToolDirectory,
) -> None:
    write_file(place, "a.txt", b"one\n\n  three")

    reply = anyio.run(place.use, read_file, {"path": "a.txt"})

    read_range = ReadRange(
        str(place.directory / "a.txt"), sha256(b"one\n\n  three").hexdigest()
    )
    text = "1\tone\n2\t\n3\t  three\n(3 lines)"
    assert reply == Reply(text, (Note("read a.txt, 3 lines"),), (read_range,))


@pytest.mark.parametrize(
    ("first", "count", "text"),
    [
        (1, 2, "1\ta\n2\tb\n(lines 1-2 of 3; continue with first=3)"),
        (3, 9, "3\tc\n(lines 3-3 of 3)"),
        (4, 1, "(there are only 3 lines)"),
    ],
)
def test_a_partial_read_states_how_to_continue(
    place: ToolDirectory, first: int, count: int, text: str
) -> None:
    write_file(place, "a", b"a\nb\nc\n")

    assert read(place, path="a", first=first, count=count) == text


def test_consecutive_partial_reads_return_every_line(place: ToolDirectory) -> None:
    lines = [f"line {n} " + "x" * (n % 3000) for n in range(1, 600)]
    write_file(place, "a", "\n".join(lines).encode())
    first, parts = 1, list[str]()

    while True:
        text = read(place, path="a", first=first)
        assert len(text) < 30_000
        body, _, tail = text.rpartition("\n(")
        parts += [line.partition("\t")[2] for line in body.split("\n")]
        if "first=" not in tail:
            break
        first = int(tail.rpartition("first=")[2].rstrip(")"))

    assert [p[:2000] for p in parts] != []
    assert [p[:1990] for p in parts] == [line[:1990] for line in lines]


def test_a_very_long_line_is_truncated_with_a_count(place: ToolDirectory) -> None:
    write_file(place, "a", b"x" * 5_000_000)

    assert read(place, path="a") == f"1\t{'x' * 2000} [4,998,000 more characters]\n(1 line)"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", "1\tone\n2\ttwo\n(2 lines)"),
        ("ä\n".encode("latin-1"), "1\tä\n(1 line; the file is Latin-1)"),
        (
            b"\xff\xfe" + "ä\r\n".encode("utf-16-le"),
            "1\tä\n(1 line; the file is UTF-16-LE)",
        ),
        (b"\xfe\xff" + "ä".encode("utf-16-be"), "1\tä\n(1 line; the file is UTF-16-BE)"),
        (
            "ä".encode() + b"\xff",
            "1\tä�\n(1 line; some bytes are not UTF-8 and are shown as �)",
        ),
        (b"\n", "1\t\n(1 line)"),
        (b"", "a is empty."),
        (PNG, "a is an image, image/png, 28 bytes."),
        (
            b"BM\0\0\0\0\0\0\0\0..",
            "a is an image, image/bmp, 12 bytes, and cannot be shown: 'a' is image/bmp: "
            "models see PNG, JPEG, GIF and WebP",
        ),
        (
            PNG + bytes(30_000_000),
            "a is an image, image/png, 30,000,028 bytes, and cannot be shown: 'a' has "
            "30,000,028 bytes, and images may have up to 30,000,000: make it smaller first",
        ),
        (b"BMW is a car\n", "1\tBMW is a car\n(1 line)"),
    ],
)
def test_read_returns_text_or_a_description_of_the_file(
    place: ToolDirectory, content: bytes, text: str
) -> None:
    write_file(place, "a", content)

    assert read(place, path="a") == text


def test_read_file_returns_an_image_unchanged(place: ToolDirectory) -> None:
    write_file(place, "a.png", PNG)

    reply = anyio.run(place.use, read_file, {"path": "a.png"})

    assert reply.images == (ImageData(PNG, "image/png", "a.png"),)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("binary", "binary is a program (9 bytes), not text"),
        ("directory", "directory is a directory: list_files shows"),
        ("nothing", "Cannot read nothing: there is no such file"),
        ("pipe", "pipe is a device, pipe or socket"),
        ("/dev/zero", "/dev/zero is a device, pipe or socket"),
        ("blob:abc", "There is no 'blob:abc'"),
    ],
)
def test_read_refuses_paths_that_are_not_readable_files(
    place: ToolDirectory, path: str, message: str
) -> None:
    write_file(place, "binary", b"\x7fELF\0\0\0\0\0")
    (place.directory / "directory").mkdir()
    os.mkfifo(place.directory / "pipe")

    with pytest.raises(ToolFailed, match=message.replace("(", r"\(").replace(")", r"\)")):
        read(place, path=path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file.txt", "The files there are notes.md, number.txt."),
        ("numbers.txt", "Did you mean number.txt?"),
        ("sub/number.txt", "Did you mean sub/numbers.txt?"),
        ("sub/none/number.txt", "there is no such file"),
    ],
)
def test_an_unknown_path_is_refused_with_similar_names(
    place: ToolDirectory, path: str, message: str
) -> None:
    for name in ("number.txt", "notes.md", "sub/numbers.txt"):
        (place.directory / name).parent.mkdir(exist_ok=True)
        write_file(place, name, b"1")

    with pytest.raises(ToolFailed) as error:
        read(place, path=path)

    assert message in str(error.value)


def test_names_outside_the_workspace_are_not_suggested(place: ToolDirectory) -> None:
    write_file(place, "../secret-plan", b"1")

    with pytest.raises(ToolFailed) as error:
        read(place, path=str(place.directory.parent / "secret-plans"))

    assert "Did you mean" not in str(error.value)


def test_no_names_are_suggested_from_a_directory_with_many_files(
    place: ToolDirectory,
) -> None:
    for number in range(9):
        write_file(place, f"{number}.txt", b"1")

    with pytest.raises(ToolFailed, match=r"there is no such file or directory\.$"):
        read(place, path="something")


def test_a_file_name_that_is_not_utf_8_can_be_recorded_in_a_journal(
    place: ToolDirectory,
) -> None:
    write_file(place, os.fsdecode(b"bad\xff\nname"), b"x")

    reply = anyio.run(place.use, read_file, {"path": r"bad\xff\nname"})

    assert reply.seen[0].path == str(place.directory / r"bad\xff\nname")
    assert msgspec.json.encode(reply)


def test_a_notebook_is_read_by_its_cells(place: ToolDirectory) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [
                {"output_type": "stream", "text": ["hello\n"]},
                {"data": {"text/plain": "2", "image/png": "…"}},
                {"data": {"image/png": "…"}},
                {"ename": "ValueError", "evalue": "no"},
            ],
        },
    ]
    write_file(place, "n.ipynb", msgspec.json.encode({"cells": cells}))

    texts = [
        line.partition("\t")[2] for line in read(place, path="n.ipynb").split("\n")[:-1]
    ]

    assert texts == [
        "--- cell 1, markdown ---", "# Title", "words",
        "--- cell 2, code ---", "1 + 1",
        "--- output ---", "hello", "",
        "--- output ---", "2", "[an image: image/png]",
        "--- output ---", "[image/png]",
        "--- output ---", "ValueError: no",
    ]  # fmt: skip


def test_read_returns_invalid_notebooks_as_plain_text(place: ToolDirectory) -> None:
    write_file(place, "n.ipynb", b'{"cells": 3}')

    assert read(place, path="n.ipynb") == '1\t{"cells": 3}\n(1 line)'


@pytest.mark.slow
def test_a_pdf_is_read_by_its_pages(place: ToolDirectory) -> None:
    pytest.importorskip("pypdfium2", reason="the extra refold[docs] is not installed")
    write_file(place, "a.pdf", pdf("Hello there"))

    text = read(place, path="a.pdf")

    assert text == "1\t--- page 1 ---\n2\tHello there\n(2 lines; the words of a PDF)"


@pytest.mark.slow
def test_a_broken_pdf_is_refused_in_one_sentence(place: ToolDirectory) -> None:
    pytest.importorskip("pypdfium2", reason="the extra refold[docs] is not installed")
    write_file(place, "a.pdf", b"%PDF-1.7 and nothing more")

    with pytest.raises(
        ToolFailed, match=r"a\.pdf is a PDF that cannot be opened: .*[^.]\.$"
    ):
        read(place, path="a.pdf")


@pytest.mark.slow
def test_a_pdf_that_unpacks_to_gigabytes_is_refused(
    place: ToolDirectory,
) -> None:
    pytest.importorskip("pypdfium2", reason="the extra refold[docs] is not installed")
    packer = zlib.compressobj(9)
    words = b"BT /F1 1 Tf " + b"(aaaaaaaaaaaaaaaa) Tj " * 45_000 + b"ET "
    packed = b"".join([*(packer.compress(words) for _ in range(400)), packer.flush()])
    write_file(place, "a.pdf", pdf_of(packed, b"/Filter/FlateDecode"))

    with pytest.raises(
        ToolFailed, match=r"a\.pdf is a PDF that takes (more than|too much)"
    ):
        read(place, path="a.pdf")


def test_reading_a_pdf_without_the_docs_extra_names_the_package_to_install(
    place: ToolDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    write_file(place, "a.pdf", b"%PDF-1.7")

    with pytest.raises(ToolFailed, match=r"pip install 'refold\[docs\]'"):
        read(place, path="a.pdf")


def test_read_continues_a_truncated_blob_by_lines(place: ToolDirectory) -> None:
    place.blobs.kept["abc"] = b"one\r\n" + b"x" * 2500 + b"\nthree"

    assert read(place, path="blob:abc", first=2, count=2) == (
        f"2\t{'x' * 2000}\n3\t{'x' * 500}\n(lines 2-3 of 4; continue with first=4)"
    )


def pdf(text: str) -> bytes:
    """Return the least that is a PDF with one line on one page."""
    return pdf_of(f"BT /F1 24 Tf 20 100 Td ({text}) Tj ET".encode())


def pdf_of(stream: bytes, filters: bytes = b"") -> bytes:
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d%s>>stream\n%s\nendstream" % (len(stream), filters, stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body = b"%PDF-1.4\n"
    for number, text in enumerate(objects, 1):
        body += b"%d 0 obj%s endobj\n" % (number, text)
    return body + b"trailer<</Root 1 0 R/Size 6>>\n%%EOF"
