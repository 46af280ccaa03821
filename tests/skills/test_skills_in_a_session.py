"""A model in a session that sees the list of skills, and reads one."""

from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.testing.providers import ScriptedProvider
from refold.values.messages import ToolResult


@pytest.fixture(autouse=True)
def separate_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "refold"))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_system_prompt_lists_skills_and_read_skill_needs_no_approval(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider([("read_skill", '{"name": "excel-writer"}')], "Read.")

    async def scenario() -> str:
        async with Agent(provider=provider, directory=tmp_path).session() as session:
            return (await session.run("A workbook, please.")).text

    assert anyio.run(scenario) == "Read."
    assert "\n- excel-writer: Make an Excel workbook" in provider.heard[0].system
    (result,) = provider.heard[-1].messages[-1].message.parts
    assert isinstance(result, ToolResult)
    assert "- scripts/write_xlsx.py" in result.text
    assert "A workbook is right when somebody can change an input" in result.text
