"""Deny rules on reading apply to what commands open, wherever it is."""

import json
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.testing.providers import ScriptedProvider
from refold.values.messages import ToolResult
from tests.place.walled import needs_bubblewrap


def run_allowed_script(home: Path, rule: str, script: str) -> str:
    """Return what an allowed script prints, in a workspace below the home."""
    needs_bubblewrap()
    (home / "ws").mkdir(exist_ok=True)
    (home / "ws/go").write_text(script)
    provider = ScriptedProvider([("bash", json.dumps({"command": "bash go"}))], "Done.")
    agent = Agent(
        provider=provider,
        mode="bypass",
        tools=(),
        builtin=True,
        directory=home / "ws",
        settings={"permissions.deny": [rule]},
    )

    async def main() -> None:
        async with agent.session() as session:
            await session.run("Go.")

    anyio.run(main)
    (result,) = provider.heard[-1].messages[-1].message.parts
    assert isinstance(result, ToolResult)
    return result.text


@pytest.mark.parametrize(
    "rule",
    [
        "read_file(~/x/*.key)", "read_file(~/x/**)", "read_file(~/**/*.key)", "read_file(~/x/)",
        "read_file({home}/x/?.key)", "read_file(~/x/*.KEY)", "read_file(~/linked/*.key)",
        "read_file(~/x/a*)", "read_file(~/x/*)", "read(~/x/*.key)",
    ],
)  # fmt: skip
def test_command_cannot_open_a_file_that_a_deny_pattern_matches(
    home: Path, rule: str
) -> None:
    (home / "x").mkdir()
    (home / "x/a.key").write_text("S3CRET")
    (home / "linked").symlink_to(home / "x")
    (home / "free").write_text("free")
    script = "cat ~/x/a.key ~/linked/a.key ~/free"

    text = run_allowed_script(home, rule.format(home=home), script)

    assert "S3CRET" not in text
    assert "free" in text


def test_command_opens_a_file_that_no_deny_pattern_matches(home: Path) -> None:
    (home / "x").mkdir()
    (home / "x/a.txt").write_text("plain")

    assert "plain" in run_allowed_script(home, "read_file(~/x/*.key)", "cat ~/x/a.txt")
