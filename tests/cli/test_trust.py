"""`refold trust`: shows what a folder contains before it applies, and removes the trust."""

import io
import json
import sys
from pathlib import Path

import pytest

from refold.cli.main import main

RULES = '[permissions]\nallow = ["bash(make test)"]\n'


class RefoldRunner:
    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = self._capfd.readouterr()
        return code, out, err


@pytest.fixture
def refold(capfd: pytest.CaptureFixture[str]) -> RefoldRunner:
    return RefoldRunner(capfd)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold/config.toml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def test_trust_add_shows_the_settings_and_trust_remove_removes_the_trust(
    refold: RefoldRunner, folder: Path
) -> None:
    text = ".refold/config.toml:\n  runs without asking: bash(make test)\n"

    assert refold("trust", "list") == (0, "", "")
    assert refold("trust", "add", "--yes") == (
        0, f"{text}{folder} is trusted, until these files change.\n", "",
    )  # fmt: skip
    assert refold("trust", "add", "--yes") == (0, f"{folder} is trusted already.\n", "")
    assert refold("trust", "list") == (0, f"{folder}: .refold/config.toml\n", "")
    assert refold("trust", "remove") == (0, f"{folder} is not trusted any more.\n", "")
    assert refold("trust", "list") == (0, "", "")


def test_trust_list_marks_changed_settings_and_trust_add_shows_them_again(
    refold: RefoldRunner, folder: Path
) -> None:
    refold("trust", "add", "--yes")
    (folder / ".refold/config.local.toml").write_text("effort = 'low'\n")

    _, text, _ = refold("trust", "list", "--json")
    _, result, _ = refold("trust", "add", "--yes", str(folder))

    assert json.loads(text)["state"] == "changed"
    assert set(json.loads(text)["files"]) == {".refold/config.toml"}
    assert ".refold/config.local.toml:\n  effort = 'low'\n" in result
    assert json.loads(refold("trust", "list", "--json")[1])["state"] == "trusted"


@pytest.mark.parametrize(("answer", "trusted"), [("y\n", True), ("\n", False), ("", False)])
def test_trust_add_at_a_terminal_asks_for_confirmation(
    refold: RefoldRunner,
    folder: Path,
    answer: str,
    trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    code, out, _ = refold("trust", "add")

    assert code == (0 if trusted else 1)
    assert f"Use these settings in {folder}? [y/N] " in out
    assert bool(refold("trust", "list")[1]) == trusted


def test_trust_add_without_a_terminal_needs_yes(refold: RefoldRunner, folder: Path) -> None:
    code, text, why = refold("trust", "add")

    assert (code, bool(text)) == (1, True)
    assert why == (
        f"refold: Use these settings in {folder}? There is no terminal to answer at: "
        "repeat the command with --yes\n"
    )
    assert refold("trust", "list") == (0, "", "")


def test_trust_refuses_invalid_empty_and_missing_folders_in_one_sentence(
    refold: RefoldRunner, folder: Path
) -> None:
    file = folder / ".refold/config.toml"
    file.write_text("[providers.anthropic]\nbase_url = 'http://evil'\n")
    forbidden = refold("trust", "add", "--yes")
    file.unlink()
    nothing = refold("trust", "add", "--yes")

    assert forbidden == (
        1,
        "",
        "refold: .refold/config.toml:2: a project must not set providers.anthropic.base_url: "
        "write it into your own settings if you want it; "
        f"{folder} is not trusted\n",
    )
    assert nothing == (
        1, "",
        f"refold: there is nothing to trust in {folder}: it has no .refold/config.toml and "
        "no AGENTS.md\n",
    )  # fmt: skip
    assert refold("trust", "remove")[2].startswith(f"refold: {folder} is not trusted")
    assert refold("trust", "add", "nowhere") == (
        1, "", "refold: 'nowhere': there is no such directory\n",
    )  # fmt: skip


def test_trust_in_a_folder_with_only_instructions_remains_when_they_change(
    refold: RefoldRunner, folder: Path
) -> None:
    (folder / ".refold/config.toml").unlink()
    (folder / "AGENTS.md").write_text("Use tabs.")

    added = refold("trust", "add", "--yes")
    (folder / "AGENTS.md").write_text("Use spaces.")

    assert added == (
        0,
        f"Instructions for the model in {folder}:\n  AGENTS.md (9 bytes)\n"
        f"The instructions in {folder} are sent to the model from now on.\n",
        "",
    )
    code, changes, _ = refold("trust", "add", "--yes")
    assert code == 0
    assert f"{folder}/AGENTS.md changed since you trusted it:\n" in changes
    assert "-Use tabs." in changes
    assert "+Use spaces." in changes
    assert refold("trust", "add", "--yes") == (0, f"{folder} is trusted already.\n", "")
    assert refold("trust", "list") == (0, f"{folder}: its instructions for the model\n", "")
    assert json.loads(refold("trust", "list", "--json")[1]) == {
        "folder": str(folder), "files": {}, "state": "trusted",
    }  # fmt: skip
    assert refold("trust", "remove")[0] == 0
    assert refold("trust", "list") == (0, "", "")


def test_trust_add_shows_and_trusts_settings_and_instructions_together(
    refold: RefoldRunner, folder: Path
) -> None:
    inner = folder / "inner"
    (inner / ".claude/skills/paint").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "CLAUDE.md").write_text("Use tabs.")
    (folder / ".refold").rename(inner / ".refold")

    added = refold("trust", "add", "--yes", str(inner))

    assert added[1] == (
        ".refold/config.toml:\n  runs without asking: bash(make test)\n"
        f"Instructions for the model in {folder}:\n"
        "  ../CLAUDE.md (9 bytes)\n  .claude/skills (1 in it)\n"
        f"{inner} is trusted, until these files change.\n"
        f"The instructions in {folder} are sent to the model from now on.\n"
    )
    assert refold("trust", "list")[1] == (
        f"{folder}: its instructions for the model\n{inner}: .refold/config.toml\n"
    )


def test_trust_in_instructions_of_a_folder_does_not_cover_its_settings(
    refold: RefoldRunner, folder: Path
) -> None:
    settings = folder / ".refold/config.toml"
    settings.unlink()
    (folder / "AGENTS.md").write_text("Use tabs.")
    refold("trust", "add", "--yes")
    settings.write_text(RULES)

    assert refold("trust", "list")[1] == (
        f"{folder}: its instructions for the model (its settings are ignored)\n"
    )
    assert refold("config", "show")[2].startswith(
        f"refold: .refold/config.toml in {folder}: not trusted, so"
    )
    assert "runs without asking" in refold("trust", "add", "--yes")[1]


def test_trust_remove_of_a_subfolder_names_the_trusted_parent_folder(
    refold: RefoldRunner, folder: Path
) -> None:
    (folder / ".git").mkdir()
    (folder / "AGENTS.md").write_text("Use tabs.")
    (folder / "inner").mkdir()
    refold("trust", "add", "--yes")

    text = refold("trust", "remove", "inner")[2]

    assert text == (
        f"refold: {folder}/inner is not trusted ({folder} is trusted, and contains it)\n"
    )


def test_config_show_includes_project_settings_only_after_trust_add(
    refold: RefoldRunner, folder: Path
) -> None:
    before, text = refold("config", "show")[1:]
    refold("trust", "add", "--yes")
    after, silent = refold("config", "show")[1:]

    assert "permissions.allow = []  # default\n" in before
    assert text.startswith(f"refold: .refold/config.toml in {folder}: not trusted, so")
    assert (
        'permissions.allow = ["bash(make test)"]  # project .refold/config.toml:2\n'
        in after
    )
    assert silent == ""
