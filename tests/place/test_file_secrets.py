"""A mask never lands in a file, and a value never in another file or another line."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.file_secrets import FileSecrets
from refold.place.files import DiskFiles
from refold.place.port import Files
from refold.session.redactor import Redactor
from refold.tools.apply_patch import apply_patch
from refold.tools.contract import Reply, Tool
from refold.tools.edit import edit_file, multi_edit, write_file
from refold.tools.file_versions import digest
from refold.tools.notebook_edit import notebook_edit
from refold.values.secret_mask import MASK_PATTERN, has_mask

# Put together here, so that scanners do not take this file for a leak.
TOKEN = "ghp_" + "a1" * 18
OTHER = "sk-" + "ant-api03-" + "x1" * 20
KNOWN = "hunter2-hunter2"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB/+=\n-----END RSA PRIVATE KEY-----"
VALUES = (TOKEN, OTHER, KNOWN, PEM)
MASKS = Redactor([KNOWN], lambda: b"k" * 32)
TEXT = f'a = 1\nKEY = "{TOKEN}"\nOTHER = "{OTHER}"  # {KNOWN}\npem = """{PEM}"""\nb = 2\n'


def mask_text(text: str) -> str:
    """Return the text as a model reads it."""
    return MASKS.mask_event(text)


class Folder(Struct, frozen=True):
    root: Path

    @property
    def files(self) -> Files:
        return DiskFiles(self.root, find_secrets=MASKS.pieces)

    def call(self, tool: Tool, **arguments: object) -> str:
        """Return the result, or why there is none."""
        files = self.files
        known = {
            str(p): digest(p.read_bytes()) for p in self.root.rglob("*") if p.is_file()
        }

        async def run() -> Reply:
            means = {"files": files, "known": known, "unread": frozenset[str]()}
            needs = {name: means[name] for name in tool.signature().needs}
            return await tool.run(**arguments, **needs)

        try:
            return anyio.run(run).text
        except ToolFailed as error:
            return str(error)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "a.py").write_text(TEXT)
    return Folder(tmp_path)


def test_write_file_with_masked_text_keeps_the_secret_values(folder: Folder) -> None:
    folder.call(write_file, path="a.py", content=mask_text(TEXT).replace("b = 2", "b = 3"))

    assert (folder.root / "a.py").read_text() == TEXT.replace("b = 2", "b = 3")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_write_file_keeps_secret_values_in_every_encoding_and_line_end(
    folder: Folder, encoding: str, end: str
) -> None:
    file, text = folder.root / "a.py", f"é = 1\nKEY = {TOKEN}\nb = 2\n"
    file.write_bytes(text.replace("\n", end).encode(encoding))

    folder.call(write_file, path="a.py", content=mask_text(text).replace("b = 2", "b = 3"))

    after = text.replace("b = 2", "b = 3").replace("\n", end)
    assert file.read_bytes().decode(encoding) == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('KEY = "{}"\n', 'KEY = "{}"\nc = 3\n'),
        ('"{}"\nOTHER', '"{}"\nc = 3\nOTHER'),
        ("a = 1\nKEY", "a = 2\nKEY"),
    ],
)
def test_edit_file_finds_a_secret_by_its_mask_and_keeps_its_value(
    folder: Folder, old: str, new: str
) -> None:
    mask = mask_text(TOKEN)

    call = folder.call(edit_file, path="a.py", old=old.format(mask), new=new.format(mask))

    assert call.startswith("Edited a.py")
    expected = TEXT.replace(old.format(TOKEN), new.format(TOKEN))
    assert (folder.root / "a.py").read_text() == expected


def test_edit_file_can_remove_a_secret_value(folder: Folder) -> None:
    folder.call(edit_file, path="a.py", old=mask_text(TOKEN), new="<from the environment>")

    assert TOKEN not in (folder.root / "a.py").read_text()


def test_multi_edit_keeps_a_secret_value_and_refuses_to_change_its_line(
    folder: Folder,
) -> None:
    mask = mask_text(TOKEN)
    edits = [
        {"old": "a = 1", "new": "a = 2"},
        {"old": f'KEY = "{mask}"', "new": f'KEY = "{mask}"\nc = 3'},
    ]
    sly = [
        {"old": "2\nKEY = ", "new": "2\nprint("},
        {"old": f'"{mask}"', "new": f'"{mask}")'},
    ]

    assert "Edited" in folder.call(multi_edit, path="a.py", edits=convert(edits))
    assert "stands for a secret" in folder.call(multi_edit, path="a.py", edits=convert(sly))
    assert (folder.root / "a.py").read_text() == TEXT.replace("a = 1", "a = 2").replace(
        f'"{TOKEN}"', f'"{TOKEN}"\nc = 3'
    )


def convert(edits: Sequence[dict[str, str]]) -> object:
    import msgspec

    raw = msgspec.json.encode({"path": "a.py", "edits": edits})
    return multi_edit.parse(raw)["edits"]


def test_apply_patch_keeps_secret_values_of_several_lines(folder: Folder) -> None:
    lines = mask_text(TEXT).splitlines()
    patch = "\n".join(
        ["*** Begin Patch", "*** Update File: a.py", "@@", f" {lines[0]}", f" {lines[1]}",
         f" {lines[2]}", f"-{lines[3]}", f"+{lines[3]}", "+c = 3", " b = 2", "*** End Patch"]
    )  # fmt: skip

    assert "Changed a.py" in folder.call(apply_patch, patch=patch)
    assert (folder.root / "a.py").read_text() == TEXT.replace("b = 2", "c = 3\nb = 2")


def test_a_notebook_edit_keeps_a_secret_in_its_cell_and_refuses_it_in_another_cell(
    folder: Folder,
) -> None:
    import json

    def cell(source: Sequence[str]) -> dict[str, object]:
        return {"cell_type": "markdown", "metadata": {}, "source": source}

    book: dict[str, object] = {
        "cells": [cell(["x\n", f'key = "{TOKEN}"']), cell(["y"])],
        "metadata": {},
    }
    file = folder.root / "n.ipynb"
    file.write_text(json.dumps({**book, "nbformat": 4, "nbformat_minor": 2}, indent=1))

    result = folder.call(
        notebook_edit, path="n.ipynb", cell=1, source=f'z\nkey = "{mask_text(TOKEN)}"'
    )
    call = folder.call(
        notebook_edit, path="n.ipynb", cell=2, source=f"print({mask_text(TOKEN)})"
    )

    assert "Changed cell 1" in result
    assert "stands for a secret" in call
    sources = [item["source"] for item in json.loads(file.read_text())["cells"]]
    assert sources == [["z\n", f'key = "{TOKEN}"'], ["y"]]


HERE = mask_text(f'KEY = "{TOKEN}"')
PLAIN = re.sub(MASK_PATTERN, "[secret]", HERE)
REFUSED: dict[str, Callable[[Folder], str]] = {
    "a new file": lambda f: f.call(write_file, path="b.py", content=HERE),
    "a new file with a mask of earlier versions": lambda f: f.call(
        write_file, path="b.py", content=PLAIN
    ),
    "a new file by a patch": lambda f: f.call(
        apply_patch,
        patch=f"*** Begin Patch\n*** Add File: b.py\n+{HERE}\n*** End Patch",
    ),
    "another line": lambda f: f.call(
        write_file, path="a.py", content=f"print({mask_text(TOKEN)})\n"
    ),
    "the same line with a comment": lambda f: f.call(
        write_file, path="a.py", content=f"{HERE}  # new\n"
    ),
    "another value in the line": lambda f: f.call(
        write_file, path="a.py", content=f'KEY = "{mask_text(OTHER)}"\n'
    ),
    "a mask that was made up": lambda f: f.call(
        write_file, path="a.py", content='KEY = "[secret:0000]"\n'
    ),
    "an edit that moves a value": lambda f: f.call(
        edit_file, path="a.py", old="a = 1", new=f"print({mask_text(TOKEN)})"
    ),
    "an edit that looks for a value of another file": lambda f: f.call(
        edit_file, path="a.py", old="[secret:0000]", new="x"
    ),
    "bytes that a client uploads": lambda f: upload(f, HERE.encode()),
    "bytes in UTF-16": lambda f: upload(f, HERE.encode("utf-16")),
    "a path": lambda f: f.call(write_file, path=f"{mask_text(TOKEN)}/b.py", content="x"),
}


def upload(folder: Folder, content: bytes) -> str:
    files = folder.files
    try:
        files.write(files.real("b.py"), content, expect="")
    except ToolFailed as error:
        return str(error)
    return ""


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED.keys())
def test_text_with_a_mask_of_no_secret_value_in_that_file_is_refused(
    folder: Folder, attempt: Callable[[Folder], str]
) -> None:
    text = attempt(folder)

    assert "stands for" in text
    assert [p.name for p in folder.root.iterdir()] == ["a.py"]
    assert (folder.root / "a.py").read_text() == TEXT


def test_text_of_a_file_that_looks_like_a_mask_is_written_unchanged(folder: Folder) -> None:
    text = "const [secret] = useState()\ntag [secret:3f2a]\nx = 1\n"
    (folder.root / "b.js").write_text(text)

    folder.call(write_file, path="b.js", content=text.replace("x = 1", "x = 2"))

    assert (folder.root / "b.js").read_text() == text.replace("x = 1", "x = 2")


def test_masks_without_tags_of_earlier_versions_keep_secret_values(folder: Folder) -> None:
    plain = re.sub(MASK_PATTERN, "[secret]", mask_text(TEXT))

    folder.call(write_file, path="a.py", content=plain.replace("b = 2", "b = 3"))

    assert (folder.root / "a.py").read_text() == TEXT.replace("b = 2", "b = 3")


def test_an_ambiguous_mask_for_two_secret_values_is_refused() -> None:
    """Two lines differ only in values with the same tag, so neither value can be restored."""
    text = f"KEY={TOKEN}\nKEY={OTHER}\n"
    alike = Redactor((), lambda: b"k")
    alike.mask_of = lambda _: b"[secret:aaaa]"  # pyright: ignore[reportAttributeAccessIssue]
    secrets = FileSecrets(text, "a", alike.pieces)

    with pytest.raises(ToolFailed, match="stands for a secret value"):
        secrets.unmask("KEY=[secret:aaaa]\n")


@given(some.text(some.sampled_from('ab "=\n\t\\é'), max_size=5), some.data())
def test_pieces_of_a_text_join_to_the_text_and_their_masks_to_the_masked_text(
    begin: str, data: some.DataObject
) -> None:
    words = some.sampled_from((*VALUES, *"ab \n=", "-----", "ghp_", "[secret]"))
    text = begin + "".join(data.draw(some.lists(words, max_size=8)))

    pieces = MASKS.pieces(text)

    assert "".join(piece.text for piece in pieces) == text
    assert "".join(piece.mask or piece.text for piece in pieces) == mask_text(text)


LINES = some.sampled_from(
    ("a = 1", "", "  b", *(f"{n} = '{v}'" for n in "xy" for v in (TOKEN, OTHER, KNOWN)))
)


@given(some.lists(LINES, max_size=6), some.lists(LINES, max_size=4), some.data())
def test_no_write_stores_a_mask_or_moves_a_secret_value_to_another_line(
    mine: list[str], others: list[str], data: some.DataObject
) -> None:
    """Written texts keep, remove and exchange lines, take lines of another file, and are
    cut.
    """
    text, foreign = "\n".join(mine), "\n".join(others)
    lines = [*mask_text(text).split("\n"), *mask_text(foreign).split("\n")]
    new_text = "\n".join(data.draw(some.lists(some.sampled_from(lines), max_size=8)))
    position = data.draw(some.integers(0, len(new_text)))
    new_text = (
        new_text[:position]
        + data.draw(some.sampled_from(("", "#", "\n", " ")))
        + new_text[position:]
    )

    try:
        result = FileSecrets(text, "a", MASKS.pieces).unmask(new_text)
    except ToolFailed:
        assert has_mask(new_text)
        return

    assert not has_mask(result)
    own = set(mine)
    assert [
        line
        for line in result.split("\n")
        if line not in own and any(value in line for value in VALUES)
    ] == []
