"""Files are checkpointed before something may change them, and changes are reported."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from refold import Agent, Effect, Reply, tool
from refold.client.result import Result
from refold.journal.events.kinds import Checkpointed, Frame, Started
from refold.place.snapshot_repository import SnapshotRepository, snapshot_directory
from refold.testing.providers import Line, ScriptedProvider
from refold.values.live import Progress


def shell(command: str) -> Line:
    import json

    return [("bash", json.dumps({"command": command}))]


class AgentRuns:
    """The turns of one agent, and all their events."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "ws"
        self.folder.mkdir()
        self._home = directory / "home"

    def run_turns(self, *turns: Sequence[Line], between: str = "") -> list[Result]:
        async def main() -> list[Result]:
            script = [line for turn in turns for line in turn]
            agent = Agent(
                directory=self.folder,
                home=self._home,
                mode="bypass",
                provider=ScriptedProvider(*script),
                settings={"sandbox.profile": "off"},
            )
            results = list[Result]()
            async with agent.session() as session:
                for turn in turns:
                    async with session.stream("Go.") as frames:
                        self.told = [frame async for frame in frames]
                    results.append(session.result)
                    if between and turn is turns[0]:
                        (self.folder / between).write_text("by hand")
            return results

        return anyio.run(main)

    told: Sequence[Frame] = ()

    @property
    def kinds(self) -> list[type]:
        events = [getattr(frame.item, "event", None) for frame in self.told]
        return [type(e) for e in events if isinstance(e, Checkpointed | Started)]


@pytest.fixture
def agent_runs(tmp_path: Path) -> AgentRuns:
    return AgentRuns(tmp_path)


def test_result_lists_files_that_commands_created_changed_and_deleted(
    agent_runs: AgentRuns,
) -> None:
    (agent_runs.folder / "old.txt").write_text("old")
    (agent_runs.folder / "gone.txt").write_text("gone")

    (result,) = agent_runs.run_turns(
        [shell("echo new > new.txt; echo x >> old.txt; rm gone.txt"), "Ok."]
    )

    assert {Path(name).name: kind for name, kind in result.files.items()} == {
        "new.txt": "created",
        "old.txt": "changed",
        "gone.txt": "deleted",
    }


def test_read_only_commands_make_no_checkpoint(agent_runs: AgentRuns) -> None:
    (result,) = agent_runs.run_turns([shell("ls; cat /dev/null"), "Ok."])

    assert (agent_runs.kinds, dict(result.files)) == ([Started], {})


def test_edit_that_fails_makes_no_checkpoint(agent_runs: AgentRuns) -> None:
    (agent_runs.folder / "a.txt").write_text("old")
    unread = [("write_file", '{"path": "a.txt", "content": "new"}')]
    missing = [("edit_file", '{"path": "a.txt", "old": "gone", "new": "come"}')]

    (result,) = agent_runs.run_turns([unread, missing, "Ok."])

    assert (agent_runs.kinds, dict(result.files)) == ([Started, Started], {})
    assert (agent_runs.folder / "a.txt").read_text() == "old"


def test_files_changed_by_the_user_between_turns_are_not_in_the_result(
    agent_runs: AgentRuns,
) -> None:
    first, second = agent_runs.run_turns(
        [shell("echo a > a.txt"), "Ok."],
        [shell("echo b > b.txt"), "Ok."],
        between="mine.txt",
    )

    assert [Path(name).name for name in first.files] == ["a.txt"]
    assert [Path(name).name for name in second.files] == ["b.txt"]


def test_every_step_that_writes_files_makes_a_checkpoint(agent_runs: AgentRuns) -> None:
    agent_runs.run_turns([shell("echo 1 > a.txt"), shell("echo 2 > a.txt"), "Ok."])

    assert agent_runs.kinds == [Started, Checkpointed, Started, Checkpointed, Checkpointed]


def test_a_failed_checkpoint_is_reported_and_the_turn_continues(
    agent_runs: AgentRuns, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "checkpoints").write_text("in the way")

    (result,) = agent_runs.run_turns([shell("echo a > a.txt"), "Ok."])

    reasons = [getattr(frame.item, "reason", "") for frame in agent_runs.told]
    assert (result.outcome, agent_runs.kinds) == ("answered", [Started])
    assert any(reason.startswith("no checkpoint: ") for reason in reasons)
    assert (agent_runs.folder / "a.txt").exists()


def test_checkpoints_do_not_change_the_git_repository_of_the_user(
    agent_runs: AgentRuns,
) -> None:
    def git(*text: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *text],
            cwd=agent_runs.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    git("init", "-q")
    (agent_runs.folder / "a.txt").write_text("a\n")
    git("add", "a.txt")
    before = (agent_runs.folder / ".git" / "index").read_bytes()

    agent_runs.run_turns([shell("echo b > a.txt; echo c > c.txt"), "Ok."])

    assert (agent_runs.folder / ".git" / "index").read_bytes() == before
    assert git("stash", "list") + git("for-each-ref") == ""


def test_files_created_by_a_custom_tool_are_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()

    @tool(Effect.RUN)
    async def generate(name: str) -> Reply:
        """Make a file."""
        (tmp_path / "ws" / name).write_text("made")
        return Reply("made")

    agent = Agent(
        directory=tmp_path / "ws", home=tmp_path / "home", mode="bypass", tools=[generate],
        provider=ScriptedProvider([("generate", '{"name": "new.txt"}')], "Ok."),
    )  # fmt: skip

    assert [Path(name).name for name in agent.run("Go.").files] == ["new.txt"]


def test_a_turn_without_writes_stores_no_checkpoint(
    agent_runs: AgentRuns, tmp_path: Path
) -> None:
    look: Line = [("list_files", "{}")]

    (result,) = agent_runs.run_turns([look, "Nothing to do."])

    assert result.outcome == "answered"
    assert not (tmp_path / "home" / "checkpoints").exists()


@pytest.mark.slow
def test_a_call_that_waits_for_a_checkpoint_shows_its_progress(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    directory = snapshot_directory(tmp_path / "home" / "checkpoints", str(tmp_path / "ws"))
    agent = Agent(
        directory=tmp_path / "ws", home=tmp_path / "home", mode="bypass",
        provider=ScriptedProvider(shell("echo new > new.txt"), "Ok."),
        settings={"sandbox.profile": "off"},
    )  # fmt: skip

    async def main() -> tuple[list[str], Result]:
        texts = list[str]()
        async with agent.session() as session:
            repository = SnapshotRepository(directory, "git", "")
            with ExitStack() as lock, anyio.fail_after(20):
                lock.enter_context(repository.lock(f"sessions/{session.id}/lock"))
                async with session.stream("Go.") as frames:
                    async for frame in frames:
                        if isinstance(frame.item, Progress):
                            texts.append(frame.item.text)
                            lock.close()  # the scan continues
            return texts, session.result

    texts, result = anyio.run(main)

    assert texts[0] == "Saving a checkpoint: looking for changed files\n"
    assert [Path(name).name for name in result.files] == ["new.txt"]
