"""Commands can run what a skill contains, and see nothing else of refold's own."""

import os
from pathlib import Path

import pytest

from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts, Target
from refold.values.tools import Effect
from tests.place.walled import needs_bubblewrap, walled
from tests.skills.surrounded import write


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    skill = write(folder / "skills", "mine")
    (skill / "scripts").mkdir()
    (skill / "scripts" / "say.sh").write_text("echo from the skill")
    (folder / "credentials.toml").write_text("secret = 'x'")
    return folder


def test_a_sandboxed_command_runs_a_skill_script_but_cannot_read_keys(
    tmp_path: Path, config: Path
) -> None:
    needs_bubblewrap()
    skills = config / "skills"
    wish = {"own": (str(config),), "shared": (str(skills),)}
    with walled(tmp_path / "ws", **wish) as ws:
        ran = ws.run(f"bash {skills}/mine/scripts/say.sh")
        result = ws.run(f"ls -A {config}; cat {config}/credentials.toml")
        wrote = ws.run(f"echo x >> {skills}/mine/SKILL.md; rm -rf {skills}/mine")

    assert ran.text == "from the skill\n"
    assert result.text.startswith("skills\n")
    assert "No such file" in result.text
    assert "Read-only file system" in wrote.text
    assert (skills / "mine" / "SKILL.md").exists()


def test_a_symlinked_skills_folder_is_not_shared_with_the_sandbox(
    tmp_path: Path, config: Path
) -> None:
    needs_bubblewrap()
    secrets = config / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("sesame")
    (config / "linked").symlink_to(secrets)
    wish = {"own": (str(config),), "shared": (str(config / "linked"),)}
    with walled(tmp_path / "ws", **wish) as ws:
        result = ws.run(f"cat {config}/linked/key {config}/secrets/key")

    assert "sesame" not in result.text


def workspace(tmp_path: Path, config: Path) -> Workspace:
    paths = Paths(config, tmp_path / "data", tmp_path / "state")
    (tmp_path / "ws").mkdir()
    return Workspace(Settings(), paths, os.environ, WorkspaceDirectories(tmp_path / "ws"))


def test_a_workspace_shares_user_skills_and_shipped_skills(
    tmp_path: Path, config: Path
) -> None:
    result = workspace(tmp_path, config)

    shared = result.sandbox.config.shared
    assert shared[0] == str(config / "skills")
    assert sorted(os.listdir(shared[1]))[0] == "api-design"
    assert result.facts().shared == shared


@pytest.mark.parametrize(
    ("command", "sandboxed", "asks_once"),
    [
        ("python3 {}/skills/mine/scripts/x.py a", True, False),
        ("python3 {}/skills/mine/scripts/x.py a", False, True),
        ("python3 {}/credentials.toml", True, True),
        ("python3 {}/skills/../credentials.toml", True, True),
    ],
)
def test_a_skill_script_is_judged_like_any_other_command(
    command: str, sandboxed: bool, asks_once: bool
) -> None:
    facts = Facts(
        roots=("/ws",), own=("/config",), shared=("/config/skills",), sandboxed=sandboxed
    )
    touch = Access("bash", Effect.RUN, command.format("/config"), cwd="/ws")

    decision = decide(touch, "bypass", (), facts)

    assert (decision.verdict, decision.once) == (
        ("ask", True) if asks_once else ("allow", False)
    )


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_changing_a_user_skill_asks_in_every_mode(tool: str) -> None:
    facts = Facts(
        roots=("/ws",), own=("/config",), shared=("/config/skills",), sandboxed=True
    )
    target = Target("/config/skills/x/SKILL.md", "/config/skills/x/SKILL.md")
    touch = Access(tool, Effect.CHANGE, files=(target,))

    assert decide(touch, "bypass", (), facts).verdict == "ask"
