"""A subagent that works in a git working tree of its own."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from refold import Question
from refold.agents.named_worktrees import make_tree
from refold.agents.worktree import Worktrees
from refold.errors import ToolFailed
from refold.journal.events.kinds import ChildAsked, ChildBorn, ChildEnded
from tests.agents.families import AgentFamily, events, last_message, task_call, tool_call
from tests.place.repositories import git

WRITE = tool_call("write_file", path="new.txt", content="new\n")
ALONE = task_call("Work", "code", worktree=True)


def test_an_unchanged_worktree_of_a_subagent_is_removed_with_its_branch(
    tmp_path: Path, repository: Path
) -> None:
    (repository / "a.txt").write_text("changed and not committed\n")
    read = tool_call("read_file", path="a.txt")
    family = AgentFamily(tmp_path, {"Go": [[ALONE], "Done."], "Work": [[read], "Looked."]})
    before = git(repository, "status", "--porcelain")

    result = family.run("Go.")

    (end,) = events(family.tree(result.session_id), ChildEnded)
    (born,) = events(family.tree(result.session_id), ChildBorn)
    assert "1\tone" in last_message(family.cast, "Work").replace(" ", "")
    assert (end.branch, end.directory) == ("", "")
    assert last_message(family.cast, "Go") == (
        "child-1 is done.\n\nLooked.\n\n(Its working tree began at commit "
        f"{born.base[:12]}. What is not committed here was not in it.)"
    )
    assert not Path(born.directory).exists()
    assert git(repository, "branch", "--format", "%(refname:short)").split() == ["main"]
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "worktree", "list").count("\n") == 1


def test_a_changed_worktree_is_kept_and_its_path_reported_to_the_parent(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(tmp_path, {"Go": [[ALONE], "Done."], "Work": [[WRITE], "Made."]})

    result = family.run("Go.")

    root = family.tree(result.session_id)
    (end,) = events(root, ChildEnded)
    assert end.branch == f"refold/{result.session_id}-child-1"
    assert (Path(end.directory) / "new.txt").read_text() == "new\n"
    assert Path(end.directory).is_relative_to(family.home / "worktrees")
    assert not (repository / "new.txt").exists()
    assert (
        f"It changed files in {end.directory}, on the branch {end.branch}."
        in last_message(family.cast, "Go")
    )
    assert result.files == {}


def test_a_subagent_works_in_the_same_subfolder_of_its_worktree_as_its_parent(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(
        tmp_path,
        {
            "Go": [[ALONE], "Done."],
            "Work": [[WRITE, tool_call("bash", command="cat b.txt")], "ok"],
        },
        directory=repository / "sub",
        mode="bypass",
    )

    result = family.run("Go.")

    (end,) = events(family.tree(result.session_id), ChildEnded)
    assert (Path(end.directory) / "sub" / "new.txt").exists()
    assert "two" in last_message(family.cast, "Work")


def test_a_subagent_in_a_worktree_cannot_write_to_the_directory_of_its_parent(
    tmp_path: Path, repository: Path
) -> None:
    outside = tool_call("write_file", path=str(repository / "a.txt"), content="mine\n")
    family = AgentFamily(tmp_path, {"Go": [[ALONE], "Done."], "Work": [[outside], "ok"]})

    family.run("Go.")

    assert (repository / "a.txt").read_text() == "one\n"


def test_a_question_of_a_subagent_in_a_worktree_offers_no_lasting_approval(
    tmp_path: Path, repository: Path
) -> None:
    async def answer_yes(question: Question) -> bool:
        return True

    family = AgentFamily(
        tmp_path,
        {"Go": [[ALONE], "Done."], "Work": [[WRITE], "ok"]},
        mode="default",
        approve=answer_yes,
    )

    result = family.run("Go.")

    (asks,) = events(family.tree(result.session_id), ChildAsked)
    assert asks.once


def test_a_subagent_of_a_subagent_works_in_the_same_worktree(
    tmp_path: Path, repository: Path
) -> None:
    family = AgentFamily(tmp_path, {
        "Go": [[ALONE], "Done."],
        "Work": [[task_call("Deep", "code")], "ok"],
        "Deep": [[WRITE], "ok"],
    })  # fmt: skip

    result = family.run("Go.")

    (end,) = events(family.tree(result.session_id), ChildEnded)
    assert (Path(end.directory) / "new.txt").exists()


def test_a_worktree_without_a_repository_or_commit_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    family = AgentFamily(tmp_path, {"Go": [[ALONE], "Hm."]})

    result = family.run("Go.")

    assert "is not a git repository" in last_message(family.cast, "Go")
    assert "You can call task without worktree." in last_message(family.cast, "Go")
    assert events(family.tree(result.session_id), ChildBorn) == []
    git(family.directory, "init", "-q")
    family.run("Go.")
    assert "has no commit to begin at" in last_message(family.cast, "Go")


def test_hooks_and_filters_of_a_repository_are_not_run(
    tmp_path: Path, repository: Path
) -> None:
    bad = f"touch {tmp_path}/was-run; cat"
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\n{bad}\n")
    hook.chmod(0o755)
    git(repository, "config", "filter.x=y.smudge", bad)
    git(repository, "config", "filter.x=y.required", "true")
    git(repository, "config", "core.fsmonitor", bad)
    (repository / ".git" / "info" / "attributes").write_text("*.txt filter=x=y\n")
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root", "child-1", await trees.base())
        await trees.make(tree, trees.child_directory(tree))
        assert (Path(tree.directory) / "a.txt").read_text() == "one\n"
        assert await trees.remove_if_unchanged(tree)

    anyio.run(main)

    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("condition", ["gitdir:**/worktrees/**", "onbranch:refold/**"])
def test_filters_configured_only_for_the_new_worktree_are_not_run(
    tmp_path: Path, repository: Path, condition: str
) -> None:
    settings = repository / ".git" / "only-there"
    settings.write_text(f'[filter "x"]\n  smudge = touch {tmp_path}/was-run; cat\n')
    git(repository, "config", f"includeIf.{condition}.path", str(settings))
    (repository / ".git" / "info" / "attributes").write_text("*.txt filter=x\n")
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root", "child-1", await trees.base())
        await trees.make(tree, trees.child_directory(tree))
        assert (Path(tree.directory) / "a.txt").read_text() == "one\n"

    anyio.run(main)

    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("kind", ["file", "link", "commondir", "objects"])
def test_a_folder_that_only_points_to_a_repository_gets_no_worktree(
    tmp_path: Path, repository: Path, kind: str
) -> None:
    """Otherwise such a folder could bring the files of any repository into a workspace."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    theirs, own = repository / ".git", stranger / ".git"
    if kind == "file":
        own.write_text(f"gitdir: {theirs}\n")
    elif kind == "link":
        own.symlink_to(theirs)
    elif kind == "commondir":
        own.mkdir()
        (own / "HEAD").write_text("ref: refs/heads/main\n")
        (own / "commondir").write_text(f"{theirs}\n")
    else:
        git(stranger, "init", "-q", "-b", "main")
        for name in ("objects", "refs"):
            shutil.rmtree(own / name)
            (own / name).symlink_to(theirs / name)

    async def main() -> None:
        with pytest.raises(ToolFailed, match="does not know this folder"):
            await make_tree("x", str(stranger), os.environ)

    anyio.run(main)

    assert not (tmp_path / "stranger-x").exists()
    assert git(repository, "branch", "--format", "%(refname:short)").split() == ["main"]


def test_a_worktree_can_be_made_from_another_worktree_or_a_submodule(
    tmp_path: Path, repository: Path
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    git(above, "init", "-q")
    git(above, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
        str(repository), "module")  # fmt: skip

    async def main() -> None:
        first = await make_tree("x", str(repository), os.environ)
        second = await make_tree("y", first.inside, os.environ)
        inner = await make_tree("z", str(above / "module"), os.environ)
        for tree in (second, inner):
            assert (Path(tree.inside) / "a.txt").read_text() == "one\n"

    anyio.run(main)


def test_a_branch_name_cannot_act_as_an_option_of_git(
    tmp_path: Path, repository: Path
) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    git(repository, "branch", "other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    packed = repository / ".git" / "packed-refs"
    packed.write_text(f"{first} refs/heads/-Bother\n")

    async def main() -> None:
        with suppress(ToolFailed):  # git may take such a name, or refuse it
            await make_tree("x", str(repository), os.environ, "-Bother")

    anyio.run(main)

    assert git(repository, "rev-parse", "other").strip() == first


def test_filters_of_a_submodule_are_not_run_and_its_changes_keep_the_worktree(
    tmp_path: Path, repository: Path
) -> None:
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root", "child-1", await trees.base())
        await trees.make(tree, trees.child_directory(tree))
        inside = Path(tree.directory) / "module"
        git(Path(tree.directory), "init", "-q", "module")
        (inside / "f.txt").write_text("one\n")
        (inside / ".gitattributes").write_text("*.txt filter=x\n")
        git(inside, "add", ".")
        git(inside, "commit", "-q", "-m", "first")
        head = git(inside, "rev-parse", "HEAD").strip()
        entry = f"160000,{head},module"
        git(Path(tree.directory), "update-index", "--add", "--cacheinfo", entry)
        git(Path(tree.directory), "commit", "-q", "-m", "module")
        git(inside, "config", "filter.x.clean", f"touch {tmp_path}/was-run; cat")
        (inside / "f.txt").write_text("two\n")  # as long as before: git reads it
        os.utime(inside / "f.txt", (1, 1))
        assert (await trees.state(tree)).loss == "1 file that is not committed"
        assert not await trees.remove_if_unchanged(tree)

    anyio.run(main)

    assert not (tmp_path / "was-run").exists()


def test_a_worktree_that_git_made_without_a_checkout_gets_its_files(
    tmp_path: Path, repository: Path
) -> None:
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root", "child-1", await trees.base())
        git(repository, "worktree", "add", "-q", "--no-checkout", "-b", tree.branch,
            tree.directory)  # fmt: skip
        await trees.make(tree, trees.child_directory(tree))
        assert await trees.remove_if_unchanged(tree)

    anyio.run(main)


def test_a_worktree_left_incomplete_by_a_crash_is_made_again(
    tmp_path: Path, repository: Path
) -> None:
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root/child-2", "child-1", await trees.base())
        assert tree.branch == "refold/root-child-2-child-1"
        git(repository, "branch", tree.branch, tree.base)
        await trees.make(tree, trees.child_directory(tree))
        await trees.make(tree, trees.child_directory(tree))
        (Path(tree.directory) / "a.txt").write_text("mine\n")
        git(Path(tree.directory), "commit", "-qam", "mine")
        assert not await trees.remove_if_unchanged(tree)
        git(Path(tree.directory), "reset", "-q", "--hard", tree.base)
        assert await trees.remove_if_unchanged(tree)
        assert await trees.remove_if_unchanged(tree)

    anyio.run(main)

    assert git(repository, "branch", "--format", "%(refname:short)").split() == ["main"]


def test_a_failed_git_worktree_command_is_reported_in_one_sentence(
    tmp_path: Path, repository: Path
) -> None:
    trees = Worktrees(tmp_path / "trees", os.environ, str(repository))

    async def main() -> None:
        tree = trees.tree_of_child("root", "child-1", "0" * 40)
        await trees.make(tree, trees.child_directory(tree))

    with pytest.raises(ToolFailed, match="git worktree failed in"):
        anyio.run(main)
