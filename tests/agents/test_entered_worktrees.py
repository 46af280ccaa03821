"""`enter_worktree` and `exit_worktree`: the session itself works in a git worktree."""

import shutil
from pathlib import Path

import anyio
import pytest

from refold import Question
from refold.errors import BadInput
from refold.journal.events.child_events import WorktreeEntered, WorktreeLeft
from refold.journal.events.kinds import Ended
from tests.agents.families import AgentFamily, events, last_message, tool_call
from tests.place.repositories import git

pytestmark = pytest.mark.slow

ENTER = tool_call("enter_worktree", name="paint")
KEEP = tool_call("exit_worktree", action="keep")
REMOVE = tool_call("exit_worktree", action="remove")
WRITE = tool_call("write_file", path="new.txt", content="new\n")
MAY = ("enter_worktree", "exit_worktree")
ALLOWED = {"permissions.allow": [*MAY]}


def list_results(family: AgentFamily, session: str) -> list[str]:
    return [item.text for item in events(family.tree(session), Ended)]


def test_files_and_commands_use_the_entered_worktree_until_it_is_left(
    tmp_path: Path, repository: Path
) -> None:
    command_call = tool_call("bash", command="pwd; git branch --show-current")
    tree = repository.parent / "work-paint"
    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], [WRITE], [command_call], [KEEP], [command_call], "Done."]},
        mode="bypass",
    )

    result = family.run("Go.")

    root = family.tree(result.session_id)
    base = git(repository, "rev-parse", "HEAD").strip()
    (entered,) = events(root, WorktreeEntered)
    (left,) = events(root, WorktreeLeft)
    assert entered == WorktreeEntered(str(tree), str(tree), "refold/paint", base)
    assert left == WorktreeLeft(str(repository), str(tree), "kept", "refold/paint")
    assert (tree / "new.txt").read_text() == "new\n"
    assert not (repository / "new.txt").exists()
    _, _, there, _, here = list_results(family, result.session_id)
    assert (there, here) == (f"{tree}\nrefold/paint", f"{repository}\nmain")


@pytest.mark.parametrize("way", ["sub", "sub/deeper"])
def test_a_link_in_a_branch_cannot_lead_the_session_out_of_the_worktree(
    tmp_path: Path, repository: Path, way: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(repository, "checkout", "-q", "-b", "bad")
    shutil.rmtree(repository / "sub")
    (repository / "sub").symlink_to(elsewhere)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "link")
    git(repository, "checkout", "-q", "main")
    (repository / way).mkdir(exist_ok=True)
    enter = tool_call("enter_worktree", name="paint", branch="bad")
    family = AgentFamily(
        tmp_path,
        {"Go": [[enter], [WRITE], "Done."]},
        mode="accept-edits",
        settings=ALLOWED,
        directory=repository / way,
    )

    result = family.run("Go.")

    assert "leads out of the working tree" in list_results(family, result.session_id)[0]
    assert not events(family.tree(result.session_id), WorktreeEntered)
    assert list(elsewhere.iterdir()) == []


def test_a_root_that_is_a_link_in_the_worktree_gives_no_access_to_its_target(
    tmp_path: Path, repository: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repository / "lib").mkdir()
    git(repository, "checkout", "-q", "-b", "bad")
    (repository / "lib").rmdir()
    (repository / "lib").symlink_to(elsewhere)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "link")
    git(repository, "checkout", "-q", "main")
    (repository / "lib").mkdir(exist_ok=True)
    enter = tool_call("enter_worktree", name="paint", branch="bad")
    write = tool_call("write_file", path=str(elsewhere / "new.txt"), content="x")
    family = AgentFamily(
        tmp_path,
        {"Go": [[enter], [write], "Done."]},
        mode="accept-edits",
        settings=ALLOWED,
        directory=repository / "sub",
    )

    async def test() -> str:
        async with family.agent.session() as session:
            await session.set_directory(str(repository / "sub"), (str(repository / "lib"),))
            return (await session.run("Go.")).session_id

    session = anyio.run(test)

    assert events(family.tree(session), WorktreeEntered)
    assert list(elsewhere.iterdir()) == []


def test_entering_from_a_subfolder_limits_the_session_to_that_subfolder(
    tmp_path: Path, repository: Path
) -> None:
    above = tool_call("write_file", path="../above.txt", content="x")
    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], [WRITE], [above], "Done."]},
        directory=repository / "sub",
        settings=ALLOWED,
    )

    result = family.run("Go.")

    tree = repository.parent / "work-paint"
    assert (tree / "sub" / "new.txt").exists()
    assert not (tree / "above.txt").exists()
    assert "outside the workspace" in list_results(family, result.session_id)[-1]


def test_rules_and_protected_files_apply_in_a_worktree_as_in_the_repository(
    tmp_path: Path, repository: Path
) -> None:
    hook = str(repository / ".git" / "hooks" / "post-commit")
    by_command = tool_call(
        "bash", command=f"echo touch x > {hook}; git config core.hooksPath /tmp; echo done"
    )
    secret = tool_call("write_file", path="sub/b.txt", content="no")
    by_tool = tool_call("write_file", path=hook, content="no")
    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], [secret], [by_tool], [by_command], "Done."]},
        settings={
            "permissions.allow": [*MAY, "bash"],
            "permissions.deny": ["edit_file(sub/**)", "write_file(sub/**)"],
        },
    )
    (repository / ".git" / "hooks" / "post-commit").unlink(missing_ok=True)
    config = (repository / ".git" / "config").read_text()

    result = family.run("Go.")

    _, denied, protected, _ = list_results(family, result.session_id)
    assert "Refused" in denied
    assert "Refused" in protected
    assert not Path(hook).exists()
    assert (repository / ".git" / "config").read_text() == config


def test_a_clean_worktree_is_removed_with_its_branch_without_asking(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(tmp_path, {"Go": [[ENTER], [REMOVE], "Done."]}, settings=ALLOWED)

    family.run("Go.")

    assert not (repository.parent / "work-paint").exists()
    assert git(repository, "branch", "--format", "%(refname:short)").split() == ["main"]


def test_a_worktree_with_uncommitted_work_is_not_removed_without_a_user(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(
        tmp_path, {"Go": [[ENTER], [WRITE], [REMOVE], "Ok."]}, mode="bypass"
    )

    result = family.run("Go.")

    tree = repository.parent / "work-paint"
    assert (tree / "new.txt").exists()
    assert list_results(family, result.session_id)[-1] == (
        f"Not removed: {tree} has 1 file that is not committed. There is no user to "
        "ask in this session. Commit the work, or call exit_worktree with keep."
    )


@pytest.mark.parametrize(("answer", "left"), [("Remove it", False), ("no, wait", True)])
def test_removing_uncommitted_work_asks_the_user_in_every_mode(
    tmp_path: Path, repository: Path, answer: str, left: bool
) -> None:
    texts = list[str]()

    async def decide(question: Question) -> bool | list[str]:
        texts.extend(ask.question for ask in question.asks)
        return [answer]

    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], [WRITE], [REMOVE], "Ok."]},
        mode="bypass",
        approve=decide,
    )

    family.run("Go.")

    tree = repository.parent / "work-paint"
    assert texts == [
        f"Remove the worktree {tree}? It has 1 file that is not committed, which would be lost."
    ]
    assert (tree / "new.txt").exists() is left


def test_commits_stay_on_the_branch_of_a_worktree_that_is_removed(
    tmp_path: Path, repository: Path
) -> None:
    commit = tool_call(
        "bash",
        command="git add . && git commit -qm more && echo ok",
    )
    family = AgentFamily(
        tmp_path, {"Go": [[ENTER], [WRITE], [commit], [REMOVE], "Ok."]}, mode="bypass"
    )

    result = family.run("Go.")

    tree = repository.parent / "work-paint"
    assert not tree.exists()
    assert git(repository, "show", "refold/paint:new.txt") == "new\n"
    assert list_results(family, result.session_id)[-1] == (
        f"The session works in {repository} again: the worktree {tree} is removed; its work "
        "is on the branch refold/paint."
    )


def test_a_worktree_with_a_commit_on_no_branch_is_not_removed(
    tmp_path: Path, repository: Path
) -> None:
    stray = tool_call(
        "bash",
        command="git checkout -q --detach && git commit -qm x --allow-empty && echo ok",
    )
    family = AgentFamily(
        tmp_path, {"Go": [[ENTER], [stray], [REMOVE], "Ok."]}, mode="bypass"
    )

    result = family.run("Go.")

    assert (repository.parent / "work-paint").exists()
    assert "1 commit that is on no branch" in list_results(family, result.session_id)[-1]


def test_enter_worktree_must_be_the_only_call_of_an_answer(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(tmp_path, {"Go": [[ENTER, WRITE], "Done."]}, mode="bypass")

    result = family.run("Go.")

    assert "Other calls of this answer are not done yet: call it alone." in list_results(
        family, result.session_id
    )
    assert (repository / "new.txt").exists()


def test_an_existing_branch_is_checked_out_and_an_unknown_one_is_refused(
    tmp_path: Path, repository: Path
) -> None:
    git(repository, "branch", "topic/one")
    enter = tool_call("enter_worktree", branch="topic/one")
    none = tool_call("enter_worktree", branch="topic/two")
    family = AgentFamily(tmp_path, {"Go": [[none], [enter], "Done."]}, settings=ALLOWED)

    result = family.run("Go.")

    first, _ = list_results(family, result.session_id)
    assert first == f"There is no branch 'topic/two' in {repository}."
    tree = repository.parent / "work-topic-one"
    assert git(tree, "branch", "--show-current") == "topic/one\n"


def test_a_resumed_session_returns_to_its_worktree_unless_it_was_deleted(
    tmp_path: Path, repository: Path
) -> None:
    tree = repository.parent / "work-paint"
    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], "There.", [WRITE], "Ok.", [WRITE], "Ok."]},
        settings={"permissions.allow": [*MAY, "write_file"]},
    )
    id_ = family.run("Go.").session_id

    async def resume_with(text: str) -> None:
        async with family.session(id_) as session:
            await session.run(text)

    anyio.run(resume_with, "Again.")
    assert (tree / "new.txt").exists()
    assert not (repository / "new.txt").exists()
    shutil.rmtree(tree)
    anyio.run(resume_with, "More.")

    assert (repository / "new.txt").exists()
    (left,) = events(family.tree(id_), WorktreeLeft)
    assert left == WorktreeLeft(str(repository), str(tree), "gone")


def test_rewind_restores_files_of_the_worktree(tmp_path: Path, repository: Path) -> None:
    tree = repository.parent / "work-paint"
    family = AgentFamily(
        tmp_path,
        {"Go": [[ENTER], "There.", [WRITE], "Ok."]},
        settings={"permissions.allow": [*MAY, "write_file"]},
    )

    async def main() -> None:
        async with family.session() as session:
            await session.run("Go.")
            await session.run("Write.")
            assert (tree / "new.txt").exists()
            points = await session.workspace.points()
            await session.workspace.rewind(points[-1].seq)

    anyio.run(main)
    assert not (tree / "new.txt").exists()


def test_the_user_enters_leaves_and_removes_a_worktree_between_turns(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(tmp_path, {"Go": [[WRITE], "Ok."]})
    tree = repository.parent / "work-paint"

    async def main() -> None:
        async with family.session() as session:
            worktree = session.workspace.worktree
            await worktree.enter_now("paint")
            await session.run("Go.")
            pairs = [
                (entry.directory, s.loss) for entry, s in await worktree.list_worktrees()
            ]
            assert pairs == [(str(tree), "1 file that is not committed")]
            with pytest.raises(BadInput, match="which would be lost"):
                await worktree.remove("", force=False)
            await worktree.leave_now()
            assert session.view.session.directory == str(repository)
            await worktree.remove("paint", force=True)

    anyio.run(main)
    assert not tree.exists()


def test_subagents_have_no_enter_worktree_tool(tmp_path: Path, repository: Path) -> None:
    task = tool_call("task", prompt="Work", agent="code")
    family = AgentFamily(
        tmp_path, {"Go": [[task], "Done."], "Work": [[ENTER], "ok"]}, mode="bypass"
    )

    family.run("Go.")

    assert "There is no tool 'enter_worktree'" in last_message(family.cast, "Work")
