"""Teams in a real application: files, questions by name, and a process that is killed."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refold.journal.board.board_file import TaskBoard
from refold.journal.events.kinds import ChildBorn, ChildEnded, MailSent, Said
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.session_tree import Node, walk
from refold.testing.providers import Line
from tests.agents.families import AgentFamily, Call, events, tool_call

NAMES = ("ann", "bob", "cy")


def spawn(name: str) -> Call:
    return tool_call("spawn_teammate", name=name, role="writer", prompt="Write.")


def start(agent: str) -> Call:
    return tool_call("spawn_teammate", name="ann", role="r", prompt="Work.", agent=agent)


def build(name: str, id_: int) -> list[Line]:
    return [
        [tool_call("task_claim", id=id_)],
        [tool_call("write_file", path=f"{name}.txt", content=f"by {name}\n")],
        [tool_call("task_update", id=id_, status="done")],
        f"{name} is done.",
        *["The others have it."]
        * 20,  # it may be offered a task that another takes just now
    ]


def team(names: Sequence[str] = NAMES) -> dict[str, Sequence[Line]]:
    tasks = [tool_call("task_create", subject=f"write {name}.txt") for name in names]
    at_work = {f"You are {name}": build(name, n) for n, name in enumerate(names, 1)}
    return {
        "Go": [[tool_call("tool_call", name=n, arguments=json.loads(a)) for n, a in tasks],
               [spawn(name) for name in names], *["I wait."] * 5],
        **at_work,
    }  # fmt: skip


def test_a_team_of_three_writes_its_files_within_one_budget(tmp_path: Path) -> None:
    family = AgentFamily(tmp_path, team(), settings={"subagents.teams": True})

    result = family.run("Go")

    files = {file.name: file.read_text() for file in family.directory.glob("*.txt")}
    assert files == {f"{name}.txt": f"by {name}\n" for name in NAMES}
    nodes = family.nodes(result.session_id)
    ends = events(nodes["root"], ChildEnded)
    assert [end.status for end in ends] == ["done"] * 3
    below = [
        node.view.account.spent for address, node in nodes.items() if address != "root"
    ]
    assert nodes["root"].view.account.children_spent.answers == sum(
        b.answers for b in below
    )


def test_without_the_teams_setting_no_teammate_starts(tmp_path: Path) -> None:
    family = AgentFamily(tmp_path, {"Go": [[spawn("ann")], "Alone then."]})

    result = family.run("Go")

    assert result.text == "Alone then."
    assert list(family.nodes(result.session_id)) == ["root"]


def test_a_read_only_teammate_has_the_team_tools(tmp_path: Path) -> None:
    cast = {
        "Go": [[start("explore")], "I wait.", "Ok."],
        "You are ann": [[tool_call("idle")]],
    }
    family = AgentFamily(tmp_path, cast, settings={"subagents.teams": True})

    family.run("Go")

    tools = {tool.name for tool in family.cast.requests_of("You are ann")[0].tools}
    assert {"idle", "send_message", "read_inbox", "task_claim", "tree"} <= tools
    lead = {tool.name for tool in family.cast.requests_of("Go")[0].tools}
    assert "spawn_teammate" in lead
    assert "idle" not in lead


def test_an_idle_teammate_stays_until_a_command_that_wakes_it_exits(tmp_path: Path) -> None:
    build = tool_call(
        "tool_call",
        name="background_run",
        arguments={"command": "sleep 0.2; echo built", "notify": True},
    )
    cast = {
        "Go": [[start("code")], "I wait.", "Ok."],
        "You are ann": [[build], [tool_call("idle")], "It is built."],
    }
    family = AgentFamily(tmp_path, cast, settings={"subagents.teams": True}, mode="bypass")

    session = family.run("Go").session_id

    (end,) = events(family.nodes(session)["root"], ChildEnded)
    assert (end.status, end.text) == ("done", "It is built.")


def _script(file: Path, scripts: dict[str, Sequence[Line]], pause: float) -> None:
    """The scripts as lines of a file; the teammates answer after a pause."""
    rows = list[dict[str, Any]]()
    for name, lines in scripts.items():
        for line in lines:
            row: dict[str, Any] = {} if name == "Go" else {"for": name, "pause": pause}
            if isinstance(line, str):
                row["text"] = line
            elif isinstance(line, list):
                row["calls"] = [{"tool": t, "arguments": json.loads(a)} for t, a in line]
            rows.append(row)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _claims(home: Path) -> int:
    boards = home.glob("projects/*/tasks.jsonl")
    return sum(board.read_bytes().count(b'"kind":"TaskClaimed"') for board in boards)


@pytest.mark.slow
@pytest.mark.parametrize("claims", [1, 2, 3])
def test_a_killed_team_resumes_and_does_each_task_once(claims: int, tmp_path: Path) -> None:
    script, home = tmp_path / "script", tmp_path / "home"
    scripts = team()
    for name in NAMES:  # all tell the next one
        after = NAMES[(NAMES.index(name) + 1) % 3]
        mail = tool_call("send_message", to=after, content=f"from {name}")
        lines = [*scripts[f"You are {name}"]]
        lines[1] = [*lines[1], mail]  # pyright: ignore - it is a list of calls
        scripts[f"You are {name}"] = [*lines, *["Read."] * 3]
    _script(script, scripts, 0.02)
    refold = (
        sys.executable, "-m", "refold", "-p", "--teams", "--permission-mode", "accept-edits",
        "--script", str(script),
    )  # fmt: skip
    environ = {**os.environ, "REFOLD_HOME": str(home)}
    process = subprocess.Popen((*refold, "Go"), cwd=tmp_path, env=environ)
    while _claims(home) < claims and process.poll() is None:
        pass
    process.kill()
    process.wait()

    _script(script, {**scripts, "Go": ["I wait."] * 9}, 0.0)
    again = subprocess.run(
        (*refold, "-c"), cwd=tmp_path, env=environ, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip

    assert (again.stdout.strip(), again.returncode) == ("I wait.", 0)
    assert all((tmp_path / f"{n}.txt").read_text() == f"by {n}\n" for n in NAMES)
    sessions = JournalDirectory(home / "sessions")
    (root,) = sessions.sessions()
    nodes = {node.address: node for node in walk(sessions.tree(root.id))}
    (project,) = (home / "projects").iterdir()
    tasks = TaskBoard(project).read().tasks
    owners = [f"{root.id}/child-{n}" for n in (1, 2, 3)]
    assert [(t.status, t.owner) for t in tasks] == [("done", owner) for owner in owners]
    assert _claims(home) == 3
    assert [end.status for end in events(nodes["root"], ChildEnded)] == ["done"] * 3
    assert len(events(nodes["root"], ChildBorn)) == 3
    result = events(nodes["root"], MailSent)
    assert sorted(mail.text for mail in result) == [
        f"from {name}" for name in sorted(NAMES)
    ]
    for mail in result:
        assert (
            read_mail(nodes[f"root/child-{NAMES.index(mail.to) + 1}"]).count(mail.text) == 1
        )


def read_mail(node: Node) -> list[str]:
    """Return the mail that a teammate got, in order."""
    texts = [item.text for item in events(node, Said)]
    return [text.split("\n")[1] for text in texts if text.startswith("<mail")]
