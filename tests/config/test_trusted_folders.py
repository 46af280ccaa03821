"""Decisions about folders are stored beside the user's settings, and nowhere else."""

import stat
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.config.layers import Origin
from refold.config.project import Project, ProjectFile
from refold.config.toml_text import as_toml
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "folders.toml"


def make_project(folder: Path) -> Project:
    return Project(str(folder), (ProjectFile(".refold/config.toml", "abc"),))


def read_allow_rules(file: Path, folder: Path) -> object:
    return (
        dict(TrustedFolders(file).layer(folder))
        .get("permissions.allow", Origin(None, ""))
        .value
    )


def test_reading_trusted_folders_without_a_file_creates_none(
    file: Path, tmp_path: Path
) -> None:
    folders = TrustedFolders(file)

    assert (folders.folders_by_path(), list(folders.layer(tmp_path))) == ({}, [])
    assert not folders.distrust(tmp_path)
    assert not file.parent.exists()


def test_trusted_folders_are_stored_in_a_file_that_only_the_owner_can_read(
    file: Path, tmp_path: Path
) -> None:
    TrustedFolders(file).trust(make_project(tmp_path))
    TrustedFolders(file).store_allow_rules(tmp_path, "bash(make test)")
    TrustedFolders(file).store_allow_rules(tmp_path, "bash(make test)", "bash(ls)")

    assert tomllib.loads(file.read_text()) == {
        "folders": {
            str(tmp_path): {
                "trusted": True,
                "shown": {".refold/config.toml": "abc"},
                "allow": ["bash(make test)", "bash(ls)"],
            }
        }
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {path.name for path in file.parent.iterdir()} == {
        "folders.toml", ".folders.toml.lock",
    }  # fmt: skip


def test_unknown_keys_in_the_file_of_trusted_folders_are_preserved(
    file: Path, tmp_path: Path
) -> None:
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text('later = [1, {a = 2.5}]\n[folders."/x"]\ntrusted = true\nnew = "é"\n')

    TrustedFolders(file).store_allow_rules(tmp_path, "bash(ls)")

    assert tomllib.loads(file.read_text()) == {
        "later": [1, {"a": 2.5}],
        "folders": {
            "/x": {"trusted": True, "new": "é"},
            str(tmp_path): {"allow": ["bash(ls)"]},
        },
    }


def test_distrust_removes_the_trust_and_keeps_always_allowed_rules(
    file: Path, tmp_path: Path
) -> None:
    folders = TrustedFolders(file)
    folders.trust(make_project(tmp_path))
    folders.store_allow_rules(tmp_path, "bash(ls)")

    assert folders.distrust(tmp_path)

    assert (folders.folders_by_path(), folders.state(make_project(tmp_path))) == ({}, "new")
    assert read_allow_rules(file, tmp_path) == ("bash(ls)",)


def test_a_symlink_to_a_folder_has_the_rules_of_that_folder(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    TrustedFolders(file).store_allow_rules(tmp_path / "link", "bash(ls)")

    assert read_allow_rules(file, tmp_path / "real") == ("bash(ls)",)


def test_storing_an_invalid_allow_rule_of_a_folder_is_refused(
    file: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"'bash\(' is not a permission rule"):
        TrustedFolders(file).store_allow_rules(tmp_path, "bash(")

    assert not file.exists()


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_of_trusted_folders_that_others_can_write_is_refused(
    file: Path, tmp_path: Path, mode: int
) -> None:
    TrustedFolders(file).store_allow_rules(tmp_path, "bash(ls)")
    file.chmod(mode)

    with pytest.raises(BadInput, match=f"other users can change it: .* chmod 600 {file}"):
        list(TrustedFolders(file).layer(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("folders = 3", "folders is not a table"),
        ("[folders]\n'{}' = 3", "is not a table"),
        ("x = ", "is not valid TOML"),
        ("a = '\xff'", "is damaged: it is not UTF-8"),
    ],
)
def test_an_invalid_file_of_trusted_folders_is_an_error_and_not_overwritten(
    file: Path, tmp_path: Path, text: str, message: str
) -> None:
    file.parent.mkdir()
    file.touch(0o600)
    file.write_bytes(text.replace("{}", str(tmp_path)).encode("latin-1"))
    before = file.read_bytes()

    for use in (
        lambda: list(TrustedFolders(file).layer(tmp_path)),
        lambda: TrustedFolders(file).store_allow_rules(tmp_path, "bash(ls)"),
    ):
        with pytest.raises(BadInput, match=message) as caught:
            use()
        assert str(file) in str(caught.value)
    assert file.read_bytes() == before


def test_an_invalid_rule_in_the_file_of_trusted_folders_is_reported(
    file: Path, tmp_path: Path
) -> None:
    TrustedFolders(file).store_allow_rules(tmp_path, "bash(ls)")
    file.write_text(file.read_text().replace("bash(ls)", "bash("))

    with pytest.raises(BadInput, match=rf"{file}: 'bash\(' is not a permission rule"):
        list(TrustedFolders(file).layer(tmp_path))


def test_concurrent_writers_of_trusted_folders_lose_no_rule(
    file: Path, tmp_path: Path
) -> None:
    def store_rules(who: int) -> None:
        for n in range(5):
            TrustedFolders(file).store_allow_rules(tmp_path, f"bash(echo {who} {n})")

    writers = [Thread(target=store_rules, args=(who,)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert len(tomllib.loads(file.read_text())["folders"][str(tmp_path)]["allow"]) == 20


def test_a_folder_whose_name_is_not_utf_8_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="its name is not UTF-8"):
        TrustedFolders(file).store_allow_rules(f"{tmp_path}/\udcff", "bash(ls)")


VALUES = st.recursive(
    st.text()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.dates()
    | st.just(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    | st.just(time(1, 2, 3)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_any_document_written_as_toml_is_read_back_unchanged(
    document: Mapping[str, object],
) -> None:
    assert tomllib.loads(as_toml(document)) == document


def test_dates_are_written_as_toml_dates() -> None:
    assert as_toml({"a": date(2026, 1, 2)}) == "a = 2026-01-02\n"


def damage(file: Path, fault: str) -> None:
    content = file.read_bytes()
    lines = content.splitlines(keepends=True)
    file.write_bytes(
        {
            "empty": b"",
            "only blanks": b"\n \n",
            "only zeros": bytes(len(content)),
            "cut in a line": content[: len(content) // 2],
            "cut at the end of a line": b"".join(lines[:-2]),
            "the first line alone": lines[0],
            "no end": content.removesuffix(lines[-1]),
            "not UTF-8": content.replace(b"true", b"\xff\xff"),
            "no TOML": content.replace(b"=", b""),
        }[fault]
    )


@pytest.mark.parametrize(
    "fault",
    [
        "empty", "only blanks", "only zeros", "cut in a line", "cut at the end of a line",
        "the first line alone", "no end", "not UTF-8", "no TOML",
    ],
)  # fmt: skip
def test_a_damaged_file_of_trusted_folders_is_refused_and_not_changed(
    file: Path, tmp_path: Path, fault: str
) -> None:
    folders = TrustedFolders(file)
    folders.trust(make_project(tmp_path))
    folders.add(tmp_path, {"deny": ["bash(git push *)"]})
    damage(file, fault)
    before = file.read_bytes()

    for use in (
        lambda: folders.state(make_project(tmp_path)),
        lambda: list(folders.layer(tmp_path)),
        lambda: folders.store_allow_rules(tmp_path, "bash(ls)"),
    ):
        with pytest.raises(BadInput) as error:
            use()
        assert str(error.value).startswith(f"{file} is damaged: ")
        assert str(error.value).endswith("or move it away and decide again")
    assert file.read_bytes() == before


def test_a_hand_written_file_of_trusted_folders_needs_no_end_marker(
    file: Path, tmp_path: Path
) -> None:
    file.parent.mkdir()
    file.write_text(f'[folders."{tmp_path}"]\nallow = ["bash(ls)"]\n')
    file.chmod(0o600)

    assert read_allow_rules(file, tmp_path) == ("bash(ls)",)


def test_a_rule_of_a_folder_is_added_replaced_and_removed(
    file: Path, tmp_path: Path
) -> None:
    folders = TrustedFolders(file)
    steps = [("", "bash(ls)"), ("", "bash(ls)"), ("", "bash(a *)"), ("bash(ls)", "bash(b)")]

    for old, new in steps:
        folders.change_rule(tmp_path, "allow", old, new)
    changed = read_allow_rules(file, tmp_path)
    with pytest.raises(BadInput):
        folders.change_rule(tmp_path, "allow", "bash(b)", "bash(")
    with pytest.raises(BadInput, match="in the meantime"):
        folders.change_rule(tmp_path, "allow", "bash(gone)", "")
    for rule in ("bash(b)", "bash(a *)"):
        folders.change_rule(tmp_path, "allow", rule, "")

    assert changed == ("bash(b)", "bash(a *)")
    assert list(folders.layer(tmp_path)) == []
