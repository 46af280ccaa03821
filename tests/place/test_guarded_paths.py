"""Which names are guarded, and which of them are found in a workspace."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from refold.place.bare_repository import bare_repository_part
from refold.place.gitconfig import runs_no_program
from refold.place.guarded_paths import Guards
from refold.values.path_names import KEYS_REASON, guard_reason, is_steering


@pytest.mark.parametrize(
    "path",
    [
        ".git", ".git/config", ".git/hooks", ".git/hooks/pre-commit", ".GIT/Config", ".env",
        ".env.local", "deep/er/.git/hooks/x", "a/.vscode/tasks.json", ".mcp.json", ".bashrc",
        "/home/me/.ssh/id_ed25519", "/home/me/.config/git/config", ".git/modules/a/hooks/x",
        ".gi\u200ct/config", "x.code-workspace", ".git/commondir", ".gitmodules", ".refold/x",
        "\uff0egit/config", ".git/info/attributes", ".config/Code/User/settings.json",
        "mcp_servers.json", ".git /hooks/x", ".git./hooks/x", ".git. ./config", "\u2024git/hooks/x",
        ".git\u2024/hooks/x", "GIT~1/hooks/x", ".devcontainer.json", "opencode.json", ".env .",
        ".opencode.json", ".crush.json", ".continue/config.yaml", ".mise.toml", "a/mise.toml",
        ".cargo/config.toml", "a/.cargo/config", "x.sublime-project", "X.Sublime-Project",
        ".envrc.local", ".cursorrules", ".windsurfrules", ".clinerules/a.md", ".roo/mcp.json",
        ".kiro/settings/mcp.json", ".pnpmfile.cjs", ".zed/tasks.json", ".yarnrc.yml", ".npmrc. ",
        ".gemini/settings.json", ".codex/config.toml", ".idea/x.xml", ".config/mise/config.toml",
    ],
)  # fmt: skip
def test_a_dangerous_file_name_is_guarded(path: str) -> None:
    assert guard_reason(path.split("/"))


@pytest.mark.parametrize(
    "path",
    [
        "src/a.py", ".env.example", ".gitignore", ".github/workflows/ci.yml", "env", ".git/HEAD",
        ".git/index", "git/config", "hooks/x", "config", ".config/other", ".envoy", "README.md",
        ".git/info/exclude", ".gitattributes", "a.env.py", "AGENTS.md", "CLAUDE.md", ".husky/x",
        ".pre-commit-config.yaml", "lefthook.yml", ".cargo/registry", "..", "a/. /b", "mise.py",
    ],
)  # fmt: skip
def test_an_ordinary_file_name_is_not_guarded(path: str) -> None:
    assert guard_reason(path.split("/")) == ""


@pytest.mark.parametrize(
    "path",
    [
        "AGENTS.md", "a/b/agents.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".husky/pre-commit",
        ".github/copilot-instructions.md", ".github/instructions/a.md", ".pre-commit-config.yaml",
        "lefthook.yml", ".gitattributes", ".tool-versions", "bunfig.toml", ".yarn/releases/yarn.cjs",
        "AGENTS.md ", "CLAUDE\u2024md",
    ],
)  # fmt: skip
def test_a_file_name_of_instructions_for_agents_or_tools_is_steering(path: str) -> None:
    assert is_steering(path.split("/"))


@pytest.mark.parametrize("path", ["README.md", ".github/workflows/ci.yml", "src/agents.py"])
def test_an_ordinary_file_name_is_not_steering(path: str) -> None:
    assert not is_steering(path.split("/"))


def names(guards: Guards, root: Path) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in guards.paths().paths)


def test_each_search_finds_the_guarded_paths_that_exist_then(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "a/b")], check=True)
    (tmp_path / "node_modules/x/.vscode").mkdir(parents=True)
    packages = tmp_path / "py/lib/python3/site-packages"
    (packages / "x").mkdir(parents=True)
    (tmp_path / "py/pyvenv.cfg").touch()
    (packages / "x/.env").touch()
    guards = Guards([str(tmp_path)])
    inside = ["a/b/.git/config", "a/b/.git/hooks"]

    before = names(guards, tmp_path)
    (tmp_path / "a/.env").touch()
    after = names(guards, tmp_path)
    (tmp_path / "a/.env").rename(tmp_path / "a/env")
    (tmp_path / "a/new/.idea").mkdir(parents=True)
    again = names(guards, tmp_path)

    assert before == inside
    assert after == ["a/.env", *inside]
    assert again == [*inside, "a/new/.idea"]


@pytest.mark.slow
def test_guarded_paths_in_the_nearest_of_very_many_directories_are_found(
    tmp_path: Path,
) -> None:
    for number in range(5100):
        (tmp_path / "deep" / str(number)).mkdir(parents=True)
    (tmp_path / ".env").touch()

    assert names(Guards([str(tmp_path)]), tmp_path) == [".env"]


@pytest.mark.slow
def test_directories_that_the_first_search_for_guarded_paths_omitted_never_count_as_new(
    tmp_path: Path,
) -> None:
    """They do not count as new either when other directories are gone."""
    for number in range(5100):
        (tmp_path / "many" / str(number)).mkdir(parents=True)
    (tmp_path / "a/b/c/.vscode").mkdir(parents=True)
    guards = Guards([str(tmp_path)])

    before = names(guards, tmp_path)
    for number in range(1000):
        (tmp_path / "many" / str(number)).rmdir()
    (tmp_path / "many/new/.idea").mkdir(parents=True)
    after = guards.paths()
    again = names(Guards([str(tmp_path)], beyond=after.beyond), tmp_path)

    assert before == []
    assert sorted(after.paths) == [str(tmp_path / "many/new/.idea")]
    assert again == ["many/new/.idea"]


def test_settings_of_other_version_control_systems_are_guarded(tmp_path: Path) -> None:
    for name in (
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".sl/config",
        "a/.bzr/branch/branch.conf",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()

    guarded = names(Guards([str(tmp_path)]), tmp_path)

    assert guarded == [
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".sl/config",
        "a/.bzr/branch/branch.conf",
    ]


@pytest.mark.parametrize(
    ("config", "is_harmless"),
    [
        ("", True),
        ("[core]\n\tbare = false\n[remote \"o\"]\n\turl = https://x/y\n\tfetch = +a:b\n", True),
        ("[user]\n\tname = me\n[branch \"main\"]\n\tremote = o\n# ext::\n", True),
        ("[core]\n\tfsmonitor = evil\n", False),
        ("[core]\n\tHooksPath = x\n", False),
        ("[core] pager = evil\n", False),
        ("[core]\n\tbare = false \\\n", False),
        ("[include]\n\tpath = x\n", False),
        ("[alias]\n\tst = !evil\n", False),
        ("[filter \"x\"]\n\tclean = evil\n", False),
        ("[diff \"x\"]\n\ttextconv = evil\n", False),
        ("[remote \"o\"]\n\turl = ext::sh -c evil\n", False),
        ("[remote \"o\"]\n\tuploadpack = evil\n", False),
        ("[submodule \"s\"]\n\tupdate = !evil\n", False),
        ("fsmonitor = evil\n", False),
    ],
)  # fmt: skip
def test_git_settings_are_harmless_only_if_they_run_no_program(
    config: str, is_harmless: bool, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(config)

    assert runs_no_program(str(tmp_path / "config")) == is_harmless


@pytest.mark.parametrize(
    "path", [".claude/.env", ".vscode/.env.local", ".refold/id_rsa", ".git/.netrc", ".env"]
)
def test_key_files_are_guarded_as_keys_in_every_directory(path: str) -> None:
    assert guard_reason(path.split("/")) == KEYS_REASON


def test_a_guarded_file_that_is_not_a_key_has_another_reason() -> None:
    assert guard_reason([".claude", "settings.json"]) not in ("", KEYS_REASON)


def test_guarded_paths_behind_a_dangling_link_are_found_once_its_target_exists(
    tmp_path: Path,
) -> None:
    """The new target changes no directory that was searched before."""
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "link").symlink_to("node_modules/late")
    time.sleep(0.06)  # a directory that just changed is searched again anyway
    guards = Guards((str(tmp_path),))
    before = [guards.paths().paths for _ in range(2)]
    (tmp_path / "node_modules/late").mkdir()
    (tmp_path / "node_modules/late/.envrc").touch()

    assert before == [frozenset(), frozenset()]
    assert guards.paths().paths == {str(tmp_path / "node_modules/late/.envrc")}


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        ("config", True), ("hooks/x", True), ("rebase-merge/git-rebase-todo", True),
        ("sequencer/opts", True), ("rebase-apply/strategy", True), ("info/attributes", True),
        ("rebase-merge/message", False), ("info/exclude", False), ("index", False),
    ],
)  # fmt: skip
def test_files_that_make_git_run_programs_are_found_in_any_repository(
    tmp_path: Path, name: str, *, decides: bool
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "d"], check=True)
    path = str(tmp_path / "d" / name)

    assert bare_repository_part([path]) == (path if decides else "")
