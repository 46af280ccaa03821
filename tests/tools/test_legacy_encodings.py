"""Files that are not UTF-8: which encoding they have, and that no change of it is silent."""

import codecs

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.apply_patch import apply_patch
from refold.tools.contract import Reply
from refold.tools.edit import edit_file, multi_edit, write_file
from refold.tools.file_versions import digest
from refold.tools.legacy_encodings import DISPLAY_NAMES, legacy_encoding
from refold.tools.notebook_edit import notebook_edit
from refold.tools.read import read_file
from refold.tools.text_files import decode_text
from refold.values.display import Diff

CHINESE = "# 数据库配置文件\n主机 = localhost\n用户名 = 管理员\n"
TRADITIONAL = "# 資料庫設定檔案\n主機 = localhost\n使用者名稱 = 管理員\n"
JAPANESE = "# データベースの設定ファイル\nホスト = localhost\nユーザー名 = 管理者\n"
KOREAN = "안녕하세요. 이것은 데이터베이스 설정 파일입니다. 사용자 이름을 적어 주세요.\n" * 2
RUSSIAN = "Это файл настроек базы данных. Укажите здесь имя пользователя и пароль.\n" * 2
FRENCH = "Ça a été créé à l’été; où êtes-vous né? “Ici” – c’est 5 €.\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHINESE, "gb18030"),
        ("配置文件\nport = 1\n", "gb18030"),
        (TRADITIONAL, "big5"),
        (JAPANESE, "cp932"),
        ("設定ファイル\n", "cp932"),
        (JAPANESE, "euc_jp"),
        (KOREAN, "cp949"),
        (RUSSIAN, "koi8_r"),
        (RUSSIAN, "cp1251"),
        (FRENCH, "cp1252"),
        ("// Acme™ “tool”\nint a;\n", "cp1252"),
        ("it’s, don’t, can’t, won’t\n", "cp1252"),
        ("Straße, Größe, Maß\n", "latin-1"),
        ("été", "latin-1"),
        ("ÄÖÜ äöü ß\n", "latin-1"),
        ("100 µm ± 5°\n", "latin-1"),
        ("x\n" * 100_000 + CHINESE, "gb18030"),
        (CHINESE * 5_000, "gb18030"),
        ("# -*- coding: euc-kr -*-\n# 오류\n", "cp949"),
        ('<?xml version="1.0" encoding="windows-1251"?>\n<a>да</a>\n', "cp1251"),
        ('<meta charset="Shift_JIS">日本\n', "cp932"),
        ("# vim: set fileencoding=koi8-r :\n# да\n", "koi8_r"),
    ],
)
def test_encoding_of_a_file_is_recognized(text: str, encoding: str) -> None:
    content = text.encode(encoding)

    was = decode_text(content)

    assert was is not None
    assert (was.encoding, was.text) == (encoding, text)


@pytest.mark.parametrize(
    "content",
    [
        "中文".encode("gbk"),  # Big5, EUC-JP and EUC-KR fit as well
        "오류".encode("euc_kr"),
        "привет".encode("koi8_r"),  # or capitals of windows-1251
        b"# coding: gbk\n" + b"\xff\xe9",  # the declared encoding is wrong
        b"# coding: rot13\n" + b"\xe9",
        b"# coding: no-such\n" + b"\xe9",
    ],
)
def test_no_encoding_is_guessed_from_weak_evidence(content: bytes) -> None:
    assert legacy_encoding(content) == "latin-1"


def test_bytes_undefined_in_windows_1252_are_decoded_as_latin_1() -> None:
    assert legacy_encoding(b"a \x81 \x93b\x94") == "latin-1"


@given(st.binary(max_size=80))
@example(CHINESE.encode("gbk") + b"\xff")
def test_text_in_the_recognized_encoding_encodes_to_the_same_bytes(content: bytes) -> None:
    encoding = legacy_encoding(content)

    assert encoding in DISPLAY_NAMES
    assert content.decode(encoding).encode(encoding) == content


def test_damaged_utf_8_is_not_taken_for_a_legacy_encoding() -> None:
    was = decode_text("Größe, naïve, été".encode() + b"\xe9")

    assert was is not None
    assert (was.encoding, was.oddity) == (
        "utf-8", "some bytes are not UTF-8 and are shown as \ufffd",
    )  # fmt: skip


TEXTS = [
    (CHINESE, "gb18030", "主机", "服务器"),
    (JAPANESE, "cp932", "ホスト", "サーバー"),
    (FRENCH, "cp1252", "“Ici”", "“Là” €"),
    (RUSSIAN, "cp1251", "имя пользователя и пароль.\nЭто", "логин.\nЭто"),
    ("\ufeffeins\r\nzwei\r\n", "utf-8", "zwei", "drei"),
    ("\ufeffeins\r\nzwei\r\n", "utf-16-le", "zwei", "☂"),
]


@pytest.mark.parametrize(("text", "encoding", "old", "new"), TEXTS)
@pytest.mark.parametrize("tool", ["write", "edit", "multi", "patch"])
def test_every_tool_keeps_encoding_byte_order_mark_and_line_ends(
    place: ToolDirectory, tool: str, text: str, encoding: str, old: str, new: str
) -> None:
    write_known_file(place, text.encode(encoding))
    after = text.replace(old, new)

    reply = change(place, tool, text.replace("\r\n", "\n").lstrip("\ufeff"), old, new)

    assert (place.directory / "a").read_bytes() == after.encode(encoding)
    diff = reply.shown[0]
    assert isinstance(diff, Diff)
    assert (diff.recoded, "encoding" in reply.text + diff.text) == ("", False)


@pytest.mark.parametrize("tool", ["edit", "multi", "patch"])
def test_edit_refuses_a_character_that_the_encoding_lacks(
    place: ToolDirectory, tool: str
) -> None:
    legacy = JAPANESE.encode("cp932")
    write_known_file(place, legacy)

    with pytest.raises(ToolFailed, match=r"a is Shift_JIS, which cannot hold '€'\..*UTF-8"):
        change(place, tool, JAPANESE, "ホスト", "5 €")

    assert (place.directory / "a").read_bytes() == legacy


@pytest.mark.parametrize(
    ("before", "recoded"),
    [
        (JAPANESE.encode("cp932"), "Shift_JIS to UTF-8"),
        ("Größe\n".encode("latin-1"), "Latin-1 to UTF-8"),
        ("“Größe”\n".encode("cp1252"), "windows-1252 to UTF-8"),
        ("a\n".encode("utf-16-le"), "binary data to UTF-8"),
    ],
)
def test_write_file_reports_that_the_encoding_becomes_utf_8(
    place: ToolDirectory, before: bytes, recoded: str
) -> None:
    place.known[str(place.directory / "a")] = digest(before)
    (place.directory / "a").write_bytes(before)

    reply = change(place, "write", "x", "x", "5 € for 茶 and ü\n")

    assert (place.directory / "a").read_bytes() == "5 € for 茶 and ü\n".encode()
    diff = reply.shown[0]
    assert isinstance(diff, Diff)
    assert reply.text.endswith(f" The encoding was changed from {recoded}.")
    assert diff.text.startswith(f"@@ the encoding was changed from {recoded} @@")
    assert diff.recoded == recoded


def test_notebook_edit_keeps_the_encoding(place: ToolDirectory) -> None:
    cell = '{"cell_type": "markdown", "metadata": {}, "source": "# データベースの設定ファイル"}'
    (place.directory / "n.ipynb").write_bytes(f'{{"cells": [{cell}]}}'.encode("cp932"))
    anyio.run(place.use, read_file, {"path": "n.ipynb"})
    arguments = {"path": "n.ipynb", "cell": 1, "source": "# 設定のファイル"}

    anyio.run(place.use, notebook_edit, arguments)

    assert "# 設定のファイル".encode("cp932") in (place.directory / "n.ipynb").read_bytes()


def test_write_file_does_not_double_a_byte_order_mark(place: ToolDirectory) -> None:
    write_known_file(place, codecs.BOM_UTF8 + b"one\n")

    change(place, "write", "x", "x", "\ufefftwo\n")

    assert (place.directory / "a").read_bytes() == codecs.BOM_UTF8 + b"two\n"


@pytest.mark.parametrize("path", ["file:///etc/x", "file://a", "http://a.example/b"])
def test_a_url_is_refused_as_the_path_of_a_file(place: ToolDirectory, path: str) -> None:
    with pytest.raises(ToolFailed, match="is an address and no path: give the path alone"):
        anyio.run(place.use, write_file, {"path": path, "content": "x"})

    assert list(place.directory.iterdir()) == []


def write_known_file(place: ToolDirectory, content: bytes) -> None:
    """A file that the session has read."""
    (place.directory / "a").write_bytes(content)
    anyio.run(place.use, read_file, {"path": "a"})


def change(place: ToolDirectory, tool: str, text: str, old: str, new: str) -> Reply:
    """`new` instead of `old` in the file, by one of the tools."""
    match tool:
        case "write":
            content = text.replace(old, new)
            return anyio.run(place.use, write_file, {"path": "a", "content": content})
        case "edit":
            arguments = {"path": "a", "old": old, "new": new, "all": True}
            return anyio.run(place.use, edit_file, arguments)
        case "multi":
            edits = [{"old": old, "new": new, "all": True}]
            return anyio.run(place.use, multi_edit, {"path": "a", "edits": edits})
        case _:
            rows = [f"-{line}" for line in text.splitlines()]
            rows += [f"+{line}" for line in text.replace(old, new).splitlines()]
            patch = "\n".join(("*** Begin Patch", "*** Update File: a", "@@", *rows, "*** End Patch"))  # fmt: skip
            return anyio.run(place.use, apply_patch, {"patch": patch})
