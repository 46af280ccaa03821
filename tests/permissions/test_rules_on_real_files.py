"""Rules about files on a real disk: links, detours, absolute names."""

from pathlib import Path

import msgspec
import pytest

from refold import Agent, Result
from refold.testing.providers import ScriptedProvider
from refold.values.messages import ToolResult


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    (path / "secret").mkdir(parents=True)
    (path / "src").mkdir()
    (path / "link").symlink_to("secret/key")
    (path / "folder").symlink_to("secret")
    (path / "away").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "outside.txt").write_text("not yours\n")
    return path


def run_call(
    workspace: Path, tool: str, path: str, **settings: object
) -> tuple[Result, str]:
    """Return the decision on one call, and what the model reads."""
    content = {"content": "x\n"} if tool == "write_file" else {}
    arguments = msgspec.json.encode({"path": path, **content}).decode()
    provider = ScriptedProvider([(tool, arguments)], "Done.")
    agent = Agent(provider=provider, directory=workspace,
                  settings={k.replace("__", "."): v for k, v in settings.items()})  # fmt: skip
    result = agent.run("Go.")
    (part,) = provider.heard[-1].messages[-1].message.parts
    assert isinstance(part, ToolResult)
    return result, part.text


NAMES = [
    "secret/key",
    "./secret/key",
    "src/../secret/key",
    "secret//key",
    "link",
    "folder/key",
]


@pytest.mark.parametrize("name", [*NAMES, "absolute"])
def test_a_deny_rule_applies_to_every_spelling_of_a_path(
    workspace: Path, name: str
) -> None:
    path = str(workspace / "secret/key") if name == "absolute" else name

    result, _ = run_call(
        workspace, "write_file", path,
        permission_mode="bypass", permissions__deny=["write_file(secret/**)"],
    )  # fmt: skip

    assert [d.tool for d in result.denials] == ["write_file"]
    assert not (workspace / "secret/key").exists()


@pytest.mark.parametrize("name", ["src/../secret/key", "src/../../outside.txt"])
def test_an_allow_rule_does_not_cover_paths_that_lead_out_of_its_folder(
    workspace: Path, name: str
) -> None:
    result, _ = run_call(
        workspace, "write_file", name, permissions__allow=["write_file(src/**)"]
    )

    assert len(result.denials) == 1


def test_an_allow_rule_applies_to_a_file_by_any_of_its_paths(workspace: Path) -> None:
    allow = ["write_file(secret/*)"]

    done = [
        len(
            run_call(workspace, "write_file", f"{name}{n}", permissions__allow=allow)[
                0
            ].denials
        )
        for n, name in enumerate(["secret/a", "./secret/b", "src/../secret/c", "folder/d"])
    ]

    assert done == [0, 0, 0, 0]


@pytest.mark.parametrize("mode", ["default", "accept-edits"])
@pytest.mark.parametrize("path", ["away", "../outside.txt", "/etc/hostname"])
def test_a_path_outside_is_asked_about_with_its_real_name(
    workspace: Path, path: str, mode: str
) -> None:
    real = "/etc/hostname" if path[0] == "/" else str(workspace.parent / "outside.txt")

    for tool in ("read_file", "write_file"):
        result, _ = run_call(workspace, tool, path, permission_mode=mode)
        (denial,) = result.denials
        assert f"{real} is outside the workspace" in denial.reason
    assert (workspace.parent / "outside.txt").read_text() == "not yours\n"


def test_an_omitted_path_means_the_workspace_and_runs_without_asking(
    workspace: Path,
) -> None:
    result, text = run_call(workspace, "list_files", ".")
    arguments = ScriptedProvider([("list_files", "{}")], "Done.")
    without = Agent(provider=arguments, directory=workspace).run("Go.")

    assert (result.denials, without.denials) == ((), ())
    assert "secret" in text
    (part,) = arguments.heard[-1].messages[-1].message.parts
    assert isinstance(part, ToolResult)
    assert part.text == text


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_an_invalid_path_fails_the_call_and_the_turn_continues(
    workspace: Path, path: str
) -> None:
    arguments = msgspec.json.encode({"path": path.replace("\ud800", "@")}).decode()
    provider = ScriptedProvider(
        [("read_file", arguments.replace("@", "\\ud800"))], "I see."
    )

    result = Agent(provider=provider, directory=workspace).run("Go.")

    (part,) = provider.heard[-1].messages[-1].message.parts
    assert isinstance(part, ToolResult)
    assert (result.outcome, result.text, part.failed) == ("answered", "I see.", True)
