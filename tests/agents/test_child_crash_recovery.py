"""After a crash, a finished subagent is used, an open one resumes, none starts twice."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.journal.events.kinds import ChildBorn, ChildEnded, ModelAnswered, Said
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.session_tree import walk
from refold.session.session import Session
from refold.testing.providers import ScriptedConversations
from tests.agents.families import Tree, run_turn, task_call, tool_call

SYNC = {
    "Go": [[task_call("Work", "worker"), task_call("Also", "worker")], "Done."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
    "Also": ["Yes."],
}
DEEP = {
    "Go": [[task_call("Middle", "worker")], "Done."],
    "Middle": [[task_call("Work", "worker")], "Passed on."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
}
BESIDE = {
    "Go": [[task_call("Work", "worker", background=True)], "I wait.", "Done."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
}


async def resume_session(tree: Tree) -> Session:
    session = await tree.open_session()
    if (
        not session.view.conversation.user_messages
        and not session.view.conversation.undelivered
    ):
        await session.inbox.say("Go.")
    await session.run_turns()
    return session


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scripts", [SYNC, DEEP, BESIDE], ids=["sync", "deep", "beside"])
def test_after_a_crash_at_any_event_the_subagents_give_the_same_results(
    scripts: Any, step: int
) -> None:
    whole = Tree(ScriptedConversations(scripts))
    first = anyio.run(run_turn, whole, "Go.")
    assert first.view.turn.answer == "Done."
    for cut in range(step, len(whole.log), step):
        cast = ScriptedConversations(scripts)
        tree = whole.after(cut, cast)
        answered = sum(len(tree.events(id_, ModelAnswered)) for id_ in tree.stores)

        session = anyio.run(resume_session, tree)

        label = f"cut at {cut}: {whole.log[cut - 1]}"
        assert session.view.turn.answer == "Done.", label
        assert set(tree.stores) == set(whole.stores), label
        for id_ in tree.stores:
            kinds = [type(e.event).__name__ for e in tree.entries(id_)]
            assert kinds.count("ChildBorn") == len(whole.events(id_, ChildBorn)), label
            assert kinds.count("ChildEnded") == len(whole.events(id_, ChildEnded)), label
            texts = [s.text for s in tree.events(id_, Said)]
            assert texts == [s.text for s in whole.events(id_, Said)], label
        asked = sum(cast.asked.values())
        total = sum(len(whole.events(id_, ModelAnswered)) for id_ in whole.stores)
        # A background child may end earlier than it did, and spare its parent an answer.
        assert asked <= total - answered, label
        assert asked >= total - answered - (scripts is BESIDE), label


def test_a_parent_that_missed_the_end_of_a_subagent_reads_it_from_its_journal() -> None:
    whole = Tree(ScriptedConversations(DEEP))
    anyio.run(run_turn, whole, "Go.")
    last = max(n for n, (who, _) in enumerate(whole.log) if who == "root/child-1")
    cast = ScriptedConversations(DEEP)
    tree = whole.after(last + 1, cast)

    session = anyio.run(resume_session, tree)

    assert cast.asked == {"Go": 1}
    (end,) = tree.events("root", ChildEnded)
    assert (end.text, end.status) == ("Passed on.", "done")
    assert session.view.turn.answer == "Done."


def test_after_a_crash_the_subagents_of_a_stopped_turn_are_not_resumed() -> None:
    whole = Tree(ScriptedConversations(DEEP))

    async def stop(tree: Tree) -> None:
        session = await tree.open_session()
        await session.inbox.interrupt("enough")

    anyio.run(run_turn, whole, "Go.")
    work = next(
        n
        for n, (who, kind) in enumerate(whole.log)
        if who == "root/child-1/child-1" and kind == "ModelAsked"
    )
    cast = ScriptedConversations(DEEP)
    tree = whole.after(work + 1, cast)
    anyio.run(stop, tree)
    again = tree.after(len(tree.log), cast)
    session = anyio.run(resume_session, again)

    assert session.view.turn.outcome == "interrupted"
    assert session.view.children.running == ()
    assert cast.asked == {}
    (end,) = again.events("root", ChildEnded)
    assert (end.outcome, end.reason) == ("cancelled", "enough")


def test_a_subagent_whose_agent_no_longer_exists_fails() -> None:
    whole = Tree(ScriptedConversations(DEEP))
    anyio.run(run_turn, whole, "Go.")
    born = next(n for n, (_, kind) in enumerate(whole.log) if kind == "ChildBorn")
    tree = whole.after(born + 1, ScriptedConversations(DEEP))
    tree.profiles = {}

    session = anyio.run(resume_session, tree)

    (end,) = tree.events("root", ChildEnded)
    assert (end.status, session.view.turn.answer) == ("failed", "Done.")


@pytest.mark.slow
def test_a_process_killed_during_a_subagent_resumes_that_subagent(tmp_path: Path) -> None:
    script = tmp_path / "script"
    lines = [
        {"calls": [{"tool": "task", "arguments": {"prompt": "Work.", "agent": "explore"}}]},
        {"text": "Done."},
        {"for": "Work.", "calls": [{"tool": "list_files"}]},
        {"for": "Work.", "text": "A long and slow answer of the child.", "pause": 0.3},
    ]
    _write(script, lines)
    refold = (sys.executable, "-m", "refold", "-p", "--script", str(script))
    environ = {**os.environ, "REFOLD_HOME": str(tmp_path / "home")}
    process = subprocess.Popen((*refold, "Go."), cwd=tmp_path, env=environ)
    below = tmp_path / "home" / "sessions"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _has_two_model_calls(below):
        time.sleep(0.05)
    process.kill()
    process.wait()

    _write(script, [lines[1], lines[2], {**lines[3], "pause": 0.0}])
    again = subprocess.run(
        (*refold, "-c"),
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (again.stdout.strip(), again.returncode) == ("Done.", 0)
    home = JournalDirectory(below)
    (root,) = home.sessions()
    data = {node.address: node for node in walk(home.tree(root.id))}
    assert list(data) == ["root", "root/child-1"]
    kinds = [type(e.event).__name__ for e in data["root/child-1"].entries]
    assert kinds.count("ModelAnswered") == 2
    assert kinds.count("ModelAsked") == 3


def _has_two_model_calls(sessions: Path) -> bool:
    journals = sessions.glob("*/children/child-1/events.jsonl")
    return any(
        journal.read_bytes().count(b'"kind":"ModelAsked"') == 2 for journal in journals
    )


def _write(file: Path, lines: Sequence[object]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
