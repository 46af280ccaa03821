"""`refold skills`: the list, and one skill in full."""

import json
import os
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from tests.skills.surrounded import write, write_skill_file


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "refold"))
    return folder


def trust(project: Path) -> None:
    TrustedFolders(paths(os.environ).folders).trust_texts(project)


def test_skills_lists_each_skill_with_its_folder_and_reports_problems(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project / ".claude/skills", "mine", "Words of mine.")
    write_skill_file(project / ".claude/skills", "bad", "bad")
    trust(project)

    code = main(["skills"])

    out, err = capsys.readouterr()
    assert code == 0
    assert out.startswith(
        "mine  (.claude/skills)\n    Words of mine.\napi-design  (refold)\n"
    )
    assert err == (
        "refold: the skill in .claude/skills/bad is ignored: SKILL.md, line 1: "
        "the file does not begin with a line ---\n"
    )


def test_skills_in_an_untrusted_directory_are_reported_and_not_listed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project / ".claude/skills", "mine")

    main(["skills", "list", "--json"])

    out, err = capsys.readouterr()
    skills = [json.loads(line) for line in out.splitlines()]
    assert [(item["name"], item["whose"]) for item in skills][:1] == [
        ("api-design", "shipped")
    ]
    assert len(skills) == 8
    assert "refold: .claude/skills: this folder is not trusted" in err


def test_skills_show_prints_a_skill_in_full(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", "show", "pdf-writer"]) == 0
    output = capsys.readouterr().out
    assert main(["skills", "show", "pdf-writer", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert output.startswith("The skill pdf-writer is in /")
    assert "- scripts/write_pdf.py\n" in output
    assert document["text"].rstrip() == output.rstrip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "give a name: refold skills show NAME"),
        (["list", "x"], "to show one skill in full: refold skills show x"),
        (["show", "pdf"], "there is no skill 'pdf'; did you mean pdf-writer?"),
    ],
)
def test_invalid_skills_arguments_fail_with_advice(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["skills", *words]) == 1
    assert message in capsys.readouterr().err
