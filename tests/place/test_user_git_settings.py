"""Commands that do not see the home get the harmless part of the user's settings for git."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.commands import ShellCommands
from refold.place.limits import Limits
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.place.user_git_settings import UserGitSettings
from refold.values.tools import Confinement
from tests.place.test_guarded_changes import git
from tests.place.walled import needs_bubblewrap

SETTINGS = """[user]
\tname = Ada \\"the first\\" Löv
\temail = ada@example.org
\tsigningkey = ~/.ssh/id
\tpassword = sesame
[alias]
\tst = !touch PWNED
[commit]
\tgpgsign = true
\ttemplate = ~/secret
[core]
\teditor = touch PWNED
\tpager = touch PWNED
\thooksPath = ~/hooks
\tfsmonitor = touch PWNED
\tsshCommand = touch PWNED
\tquotepath = false
[credential]
\thelper = !touch PWNED
[url "https://token@example.org/"]
\tinsteadOf = https://example.org/
[http]
\textraHeader = Authorization: Bearer sesame
[init]
\tdefaultBranch = trunk
[pull]
\trebase = true
[filter "x"]
\tclean = touch PWNED
[includeIf "gitdir:ws/"]
\tpath = ~/work.gitconfig
[includeIf "gitdir:elsewhere/"]
\tpath = ~/elsewhere.gitconfig
"""


class Home:
    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "src" / "ws"
        self.root.mkdir(parents=True)
        git(self.root, "init", "-q", "-b", "main")
        environ = {**os.environ, "HOME": str(directory)}
        environ.pop("XDG_CONFIG_HOME", None)
        config = SandboxConfig(
            roots=(str(self.root),),
            quarantine=str(directory / "q"),
            states=str(directory / "s"),
        )
        self.sandbox = find_sandbox(environ, config)
        self._commands = ShellCommands(environ, lambda: self.sandbox, Limits())

    def run(self, command: str, *, writes: bool = True) -> str:
        async def main() -> str:
            confines = Confinement(writes=writes, narrow=writes)
            finished = await self._commands.run(
                command, cwd=str(self.root), seconds=30, confines=confines
            )
            return finished.text.strip()

        return anyio.run(main)

    def close(self) -> None:
        self._commands.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    needs_bubblewrap()
    home = Home(tmp_path.resolve() / "home")
    yield home
    home.close()


def test_a_commit_in_mode_sandbox_has_the_author_of_the_user(home: Home) -> None:
    (home.directory / ".gitconfig").write_text(SETTINGS, "utf-8")
    (home.root / "a").write_text("1\n")

    text = home.run("git add -A && git commit -qm one && git log --format='%an <%ae> %cn'")

    name = 'Ada "the first" Löv'
    assert text == f"{name} <ada@example.org> {name}"


def test_git_settings_with_programs_files_or_secrets_are_hidden_from_commands(
    home: Home,
) -> None:
    (home.directory / ".gitconfig").write_text(SETTINGS, "utf-8")

    for writes in (True, False):
        text = home.run("git config --global --list; cat ~/.gitconfig", writes=writes)
        assert "init.defaultbranch=trunk" in text
        assert "pull.rebase=true" in text
        for word in (
            "PWNED", "sesame", "token", "hooks", "secret", "gpgsign", "signingkey", "path", "alias",
        ):  # fmt: skip
            assert word not in text.replace("quotepath", ""), word


def test_included_git_settings_for_the_repository_apply(home: Home) -> None:
    (home.directory / ".gitconfig").write_text(SETTINGS, "utf-8")
    (home.directory / "work.gitconfig").write_text("[user]\n\temail = ada@work.example\n")
    (home.directory / "elsewhere.gitconfig").write_text(
        "[user]\n\temail = no@example.org\n"
    )

    assert home.run("git config user.email") == "ada@work.example"
    (home.directory / "work.gitconfig").write_text("[user]\n\temail = a@work.example\n")
    assert home.run("git config user.email") == "a@work.example"


def test_git_settings_of_the_repository_override_those_of_the_user(home: Home) -> None:
    (home.directory / ".gitconfig").write_text(SETTINGS, "utf-8")
    git(home.root, "config", "user.email", "ada@project.example")

    assert home.run("git config user.email") == "ada@project.example"


def test_the_global_ignore_file_of_the_user_applies_to_commands(home: Home) -> None:
    (home.directory / ".gitconfig").write_text("[core]\n\texcludesfile = ~/ignored\n")
    (home.directory / "ignored").write_text("*.swp\n")
    (home.root / "a.swp").write_text("1\n")

    assert home.run("git status --porcelain") == ""
    assert home.run("git status --porcelain", writes=False) == ""


def test_a_command_cannot_change_git_settings_for_the_next_command(home: Home) -> None:
    (home.directory / ".gitconfig").write_text(SETTINGS, "utf-8")

    home.run("git config --global core.pager 'touch PWNED'; echo '[core]' >> ~/.gitconfig")
    home.run("rm -f ~/.gitconfig; mv ~/.gitconfig ~/x; cp /dev/null ~/.gitconfig")

    assert home.run("git config --global user.email") == "ada@example.org"
    assert (home.directory / ".gitconfig").read_text("utf-8") == SETTINGS


def test_without_git_settings_of_the_user_a_command_sees_none(home: Home) -> None:
    assert home.run("git config --global --list 2>/dev/null; ls -A ~ | grep git") == ""


def test_git_settings_in_the_config_directory_apply_too(home: Home) -> None:
    (home.directory / ".config" / "git").mkdir(parents=True)
    (home.directory / ".config" / "git" / "config").write_text("[user]\n\tname = Ada\n")
    (home.directory / ".gitconfig").write_text("[user]\n\temail = ada@example.org\n")

    assert home.run("git config user.name; git config user.email") == "Ada\nada@example.org"


@pytest.mark.parametrize(
    "text", ["[user\n", '[user]\n\tname = "a\\nb"\n', "[include]\n\tpath = x\n"]
)
def test_unreadable_git_settings_of_the_user_stop_no_command(home: Home, text: str) -> None:
    (home.directory / ".gitconfig").write_text(text)

    assert home.run("git status --porcelain") == ""


def test_settings_are_read_again_after_git_could_not_be_run(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ada\n")
    settings = UserGitSettings({"PATH": os.environ["PATH"]}, str(tmp_path), str(tmp_path))

    failed = [*settings.files("/nowhere/git", str(tmp_path))]
    files = dict(settings.files(shutil.which("git") or "", str(tmp_path)))

    assert failed == []
    copy = Path(files[str(tmp_path / ".gitconfig")])
    assert copy.read_text() == '[user]\n\tname = "Ada"\n'
