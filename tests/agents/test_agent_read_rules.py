"""Files that an agent's own rules forbid to read, for every tool and every subagent."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refold.journal.events.kinds import Ended
from refold.testing.providers import Line
from tests.agents.families import AgentFamily, Call, events, task_call, tool_call
from tests.place.walled import needs_bubblewrap

SECRET = "TOPSECRET"
DENY = 'deny: ["Read(secrets/**)"]'
OPEN = (
    "for path in ('secrets/k.txt', 'plain.txt'):\n"
    "    try: print(open(path).read())\n"
    "    except OSError as error: print(error)"
)
# Programs that no rule can see through.
ONE, OTHER = (
    f"python3 -c \"print(open('{first}' + '{last}').read())\""
    for first, last in (("secr", "ets/k.txt"), ("pla", "in.txt"))
)
BY_TOOLS: Sequence[Call] = (
    tool_call("read_file", path="secrets/k.txt"),
    tool_call("grep", pattern=SECRET, path="."),
    tool_call("grep", pattern=SECRET, path="secrets"),
    tool_call("edit_file", path="secrets/k.txt", old="TOPSECRETS", new="x"),
    tool_call("bash", command="cat secrets/k.txt"),
    tool_call("bash", command="cat secr*/k.txt"),
)
IN_WALLS: Sequence[Call] = (
    tool_call("bash", command=f"{OTHER}; {ONE}"),
    tool_call("python", code=OPEN),
)


def write(root: Path, name: str, fields: str) -> None:
    folder = root / "home" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\ndescription: For tests.\n{fields}\n---\nDo it.\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


def agent_family(
    root: Path, calls: Sequence[Call], below: int, **options: Any
) -> AgentFamily:
    """The caller is `below` levels below the agent `shy`, which the user talks to."""
    secret = root / "work" / "secrets" / "k.txt"
    secret.parent.mkdir(parents=True)
    secret.write_text(f"{SECRET}\n", encoding="utf-8")
    (root / "work" / "plain.txt").write_text("PLAIN, and no TOP", encoding="utf-8")
    work: list[Line] = [[call] for call in calls]
    scripts: dict[str, list[Line]] = {
        name: [[task_call(f"task {n + 1}")], "Done."]
        for n, name in enumerate(("", "task 1", "task 2")[:below])
    }
    scripts[f"task {below}" if below else ""] = [*work, "Done."]
    settings = {"agent": "shy", "memory": False, **options}
    return AgentFamily(root, scripts, mode="bypass", settings=settings)


def read_results(family: AgentFamily, below: int) -> list[str]:
    """Return the results of the calls of that session."""
    family.run("Go.")
    (session,) = os.listdir(family.home / "sessions")
    address = "/".join(("root", *["child-1"] * below))
    return [event.text for event in events(family.nodes(session)[address], Ended)]


@pytest.mark.parametrize("below", [0, 1, 2])
def test_no_tool_reads_files_that_the_rules_of_an_agent_deny(
    tmp_path: Path, below: int
) -> None:
    write(tmp_path, "shy", DENY)

    texts = read_results(agent_family(tmp_path, BY_TOOLS, below), below)

    assert len(texts) == len(BY_TOOLS)
    assert not [text for text in texts if f"{SECRET}\n" in text or f" {SECRET}" in text]


@pytest.mark.parametrize("below", [0, 1, 2])
def test_no_command_or_python_code_reads_files_that_the_rules_of_an_agent_deny(
    tmp_path: Path, below: int
) -> None:
    needs_bubblewrap()
    write(tmp_path, "shy", DENY)

    texts = read_results(agent_family(tmp_path, IN_WALLS, below), below)

    assert not [text for text in texts if SECRET in text]
    assert len(texts) == len(IN_WALLS)
    assert ["PLAIN" in text for text in texts] == [True, True]


def test_a_subagent_cannot_read_files_denied_to_it_or_to_its_parent(tmp_path: Path) -> None:
    needs_bubblewrap()
    write(tmp_path, "shy", 'deny: ["Read(plain.txt)"]')
    write(tmp_path, "code2", DENY)
    agent_family(tmp_path, (), 0)
    scripts: dict[str, Sequence[Line]] = {
        "": [[task_call("task", "code2")], "Done."],
        "task": [
            [tool_call("python", code=OPEN)],
            [tool_call("grep", pattern="TOP")],
            "Done.",
        ],
    }
    family = AgentFamily(tmp_path, scripts, mode="bypass", settings={"agent": "shy"})

    texts = read_results(family, 1)

    assert not [text for text in texts if SECRET in text or "PLAIN" in text]


def test_a_subagent_that_acts_by_code_cannot_read_files_denied_to_its_parent(
    tmp_path: Path,
) -> None:
    needs_bubblewrap()
    write(tmp_path, "shy", DENY)
    agent_family(tmp_path, (), 0)
    code = f"```python\n{OPEN}\nprint(grep('TOP'))\n```"
    scripts: dict[str, Sequence[Line]] = {
        "": [[task_call("task", "rlm")], "Done."],
        "task": [code, "```python\nFINAL(1)\n```"],
    }
    family = AgentFamily(tmp_path, scripts, mode="bypass", settings={"agent": "shy"})

    texts = read_results(family, 1)

    assert not [text for text in texts if SECRET in text]
    assert [text for text in texts if "PLAIN" in text]


def test_a_folder_with_a_denied_file_cannot_be_renamed(tmp_path: Path) -> None:
    needs_bubblewrap()
    write(tmp_path, "shy", 'deny: ["Read(secrets/k.txt)"]')
    rename = "python3 -c \"import os; os.rename('secr' + 'ets', 'others')\""
    calls = (tool_call("bash", command=rename), tool_call("read_file", path="others/k.txt"))

    renamed, read = read_results(agent_family(tmp_path, calls, 0), 0)

    assert "busy" in renamed
    assert SECRET not in read
    assert (tmp_path / "work" / "secrets" / "k.txt").exists()


def test_a_denied_file_cannot_be_read_in_a_worktree_either(tmp_path: Path) -> None:
    write(tmp_path, "shy", DENY)
    agent_family(tmp_path, (), 0)
    work = tmp_path / "work"
    git = ("git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b")
    for order in (("init", "-q"), ("add", "plain.txt"), ("commit", "-q", "-m", "first")):
        subprocess.run((*git, *order), check=True)
    read = tool_call("read_file", path=str(work / "secrets" / "k.txt"))
    search = tool_call("grep", pattern=SECRET, path=str(work))
    scripts: dict[str, Sequence[Line]] = {
        "": [[task_call("task", worktree=True)], "Done."],
        "task": [[read], [search], [tool_call("read_file", path="plain.txt")], "Done."],
    }
    family = AgentFamily(tmp_path, scripts, mode="bypass", settings={"agent": "shy"})

    texts = read_results(family, 1)

    assert not [text for text in texts if f"{SECRET}\n" in text or f" {SECRET}" in text]
    assert "PLAIN" in texts[2]


def test_an_agent_without_the_deny_rules_can_read_the_files(tmp_path: Path) -> None:
    write(tmp_path, "shy", DENY)

    texts = read_results(agent_family(tmp_path, (*BY_TOOLS, *IN_WALLS), 0, agent="main"), 0)

    assert len(texts) == len(BY_TOOLS) + len(IN_WALLS)
    assert all(SECRET in text for text in texts)
