"""Permission rules of Claude Code in a folder: deny rules count at once, the others after import."""

import json
import os
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.config.folder_settings import load_folder_settings
from refold.config.layers import rules_of
from refold.config.paths import paths

PERMISSIONS = {
    "allow": ["Bash(npm test)"],
    "deny": ["Read(./secrets/**)", "mcp__github__delete", "Nonesuch(x)"],
    "defaultMode": "acceptEdits",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".claude").mkdir()
    _write(tmp_path, {"permissions": PERMISSIONS})
    return tmp_path


def _write(folder: Path, content: object, name: str = "settings.json") -> None:
    (folder / ".claude" / name).write_text(json.dumps(content))


def _rules(folder: Path) -> list[tuple[str, str, str]]:
    settings = load_folder_settings(folder, paths(os.environ), os.environ, {}).settings
    return [(r.verdict, str(r), r.source) for r in rules_of(settings.permissions)]


def test_deny_rules_of_claude_code_count_without_trust_and_allow_rules_do_not(
    folder: Path,
) -> None:
    _write(folder, {"permissions": {"deny": ["WebFetch"]}}, "settings.local.json")

    assert _rules(folder) == [
        ("deny", "read(./secrets/**)", ".claude/settings.json"),
        ("deny", "mcp__github__delete", ".claude/settings.json"),
        ("deny", "web_fetch", ".claude/settings.local.json"),
    ]


@pytest.mark.parametrize("content", [b"{", b'{"permissions": 1}', b"\xff"])
def test_an_unreadable_claude_settings_file_is_reported_and_the_other_one_applies(
    folder: Path, content: bytes
) -> None:
    (folder / ".claude/settings.local.json").write_bytes(content)

    loaded = load_folder_settings(folder, paths(os.environ), os.environ, {}).loaded

    assert len(_rules(folder)) == 2
    assert len(loaded.unknown) == 1
    assert loaded.unknown[0].startswith(".claude/settings.local.json")
    assert loaded.unknown[0].endswith("; its deny rules are ignored")


def test_a_denied_file_is_refused_and_the_reason_names_claude_codes_settings(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["permissions", "explain", "--cwd", str(folder), "read_file(secrets/key)"])
        == 0
    )

    out = capfd.readouterr().out
    assert out.startswith("deny: read")
    assert "rule: read(./secrets/**), .claude/settings.json" in out


def test_import_stores_all_rules_for_the_folder(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["permissions", "import", "--cwd", str(folder), "--yes"]) == 0

    out, notes = capfd.readouterr()
    assert "allow  bash(npm test)\n" in out
    assert "'Nonesuch' was left out: there is no such tool here" in notes
    assert ("allow", "bash(npm test)", "always, in this folder") in _rules(folder)
