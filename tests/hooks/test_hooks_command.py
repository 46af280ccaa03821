"""`refold hooks`: what counts here, and what each hook says to an event."""

import json
from pathlib import Path

import pytest

from refold.cli.main import main


def run_hooks(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["hooks", *arguments])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.fixture
def file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (home / "refold").mkdir(parents=True, exist_ok=True)
    return home / "refold" / "hooks.json"


def test_hooks_list_without_hooks_names_the_file_for_hooks(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_hooks(capfd, "list") == (
        0,
        f"There are no hooks here. Yours go into {file}.\n",
        "",
    )


def test_hooks_list_shows_each_hook_and_its_file(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = [
        {"matcher": "Bash", "hooks": [{"command": "guard \x1b[31m"}]},
        {"hooks": [{"command": "tell", "sandbox": False}]},
        {"hooks": [{"type": "python", "entry_point": "mine"}]},
    ]
    file.write_text(json.dumps({"PreToolUse": hooks}))

    status, out, _ = run_hooks(capfd, "list")
    rows = [json.loads(row) for row in run_hooks(capfd, "list", "--json")[1].splitlines()]

    assert status == 0
    assert out.splitlines()[::2] == [
        "PreToolUse of Bash runs: guard \\x1b[31m",
        "PreToolUse runs (outside the sandbox): tell",
        "PreToolUse calls: mine",
    ]
    assert [row["matcher"] for row in rows] == ["Bash", "", ""]


def test_hooks_list_omits_hooks_of_an_untrusted_folder_with_a_notice(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold" / "hooks.json").write_text(
        json.dumps({"Stop": [{"hooks": [{"command": "evil"}]}]})
    )

    _, out, err = run_hooks(capfd, "list")

    assert "evil" not in out
    assert ".refold/hooks.json" in err
    assert "not trusted" in err


def test_an_invalid_hooks_file_is_an_error_that_names_the_file(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text("{")

    status, _, err = run_hooks(capfd, "list")

    assert status == 1
    assert str(file) in err


def test_hooks_test_reports_an_unknown_entry_point(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        json.dumps({"Stop": [{"hooks": [{"type": "python", "entry_point": "nobodys"}]}]})
    )

    status, out, _ = run_hooks(capfd, "test", "Stop")

    assert status == 1
    assert "no installed package offers the entry point 'nobodys' of refold.hooks" in out


@pytest.mark.slow
def test_hooks_test_runs_only_hooks_whose_matcher_matches_the_tool(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        json.dumps({"PreToolUse": [{"matcher": "Edit", "hooks": [{"command": "exit 2"}]}]})
    )

    result = [
        run_hooks(capfd, "test", "PreToolUse", "--tool", tool)
        for tool in ("bash", "edit_file")
    ]

    assert result[0] == (0, "No hook matches this event.\n", "")
    assert result[1][1].startswith("exit 2  blocked after")


def test_hooks_without_a_subcommand_lists_the_hooks(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_hooks(capfd) == run_hooks(capfd, "list")


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("frobnicate", "there is no tool 'frobnicate'"),
        ("Edti", "there is no tool 'Edti'; did you mean Edit?"),
    ],
)
def test_hooks_test_refuses_an_unknown_tool(
    tool: str, says: str, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_hooks(capfd, "test", "PreToolUse", "--tool", tool)

    assert result == (1, "", f"refold: {says}\n")


def test_hooks_list_reports_a_matcher_that_matches_no_tool(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = [
        {"matcher": matcher, "hooks": [{"command": "true"}]}
        for matcher in ("Bsh", "send_message", "tool_call", "Bash")
    ]
    file.write_text(json.dumps({"PreToolUse": groups}))

    _, _, err = run_hooks(capfd, "list")

    assert err == (
        f"refold: {file}: the matcher 'Bsh' fits no tool: it is compared with the tool's "
        "name, such as Bash\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "value", "expected"),
    [
        ("Bash", {"command": "ls"}, ("Bash", "bash", {"command": "ls"})),
        ("Edit", {"file_path": "a"}, ("Edit", "edit_file", {"path": "a", "file_path": "a"})),
        ("edit_file", {"path": "a"}, ("Edit", "edit_file", {"path": "a", "file_path": "a"})),
        ("mcp__x__y", {"a": 1}, ("mcp__x__y", "mcp__x__y", {"a": 1})),
    ],
)  # fmt: skip
def test_hooks_test_passes_the_same_tool_names_to_a_hook_as_a_session(
    tool: str,
    value: dict[str, object],
    expected: tuple[object, ...],
    file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file.write_text(json.dumps({"PreToolUse": [{"hooks": [{"command": "cat > told"}]}]}))

    status, _, _ = run_hooks(
        capfd, "test", "PreToolUse", "--tool", tool, "--input", json.dumps(value)
    )

    data = json.loads((tmp_path / "told").read_text())
    assert status == 0
    assert (data["tool_name"], data["tool"], data["tool_input"]) == expected
