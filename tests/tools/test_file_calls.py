"""File calls of agents, from the call to the disk: only what was judged, or nothing."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from refold import Agent, Result
from refold.testing.providers import ScriptedProvider


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("ws", "out"):
        (tmp_path / name).mkdir()
    return tmp_path / "ws"


def run_calls(
    workspace: Path,
    *calls: tuple[str, dict[str, object]],
    mode: str = "accept-edits",
    **options: object,
) -> Result:
    """One turn with these calls, one after the other."""
    steps = [[(name, msgspec.json.encode(arguments).decode())] for name, arguments in calls]
    settings = {"permission_mode": mode, "limits.steps": len(steps) + 2, **options}
    provider = ScriptedProvider(*steps, "Done.")
    return Agent(provider=provider, directory=workspace, settings=settings).run("Go.")


def write(path: str) -> tuple[str, dict[str, object]]:
    return "write_file", {"path": path, "content": "x"}


def tree(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def test_writes_through_links_out_of_the_workspace_are_refused(workspace: Path) -> None:
    out = workspace.parent / "out"
    (workspace / "pkg").symlink_to(out)
    (workspace / "log.txt").symlink_to(out / "created")

    result = run_calls(
        workspace, write("pkg/new.txt"), write("pkg/sub/deep.txt"), write("log.txt")
    )

    assert len(result.denials) == 3
    assert tree(out) == []


def test_files_with_unusual_names_stay_inside_the_workspace(
    workspace: Path, home: Path
) -> None:
    before = tree(workspace.parent / "out"), tree(home)

    result = run_calls(
        workspace,
        *(
            write(path)
            for path in (
                "ok.txt\0/../../k", "a" * 4000, "new\nline", "-rf", "~/x", "$HOME/x",
                "file:///etc/hostname", "CON", "con\0", "..hidden/..x", "docs/.gitkeep",
            )
        ),
    )  # fmt: skip

    assert result.outcome == "answered"
    assert (tree(workspace.parent / "out"), tree(home))[0] == before[0]
    assert not (home / "x").exists()
    assert sorted(os.listdir(workspace)) == [
        "$HOME", "-rf", "..hidden", "CON", "docs", "new\nline",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "section",
    [
        "*** Add File: ../evil.txt\n+x",
        "*** Update File: b\n*** Move to: ../../moved\n@@\n-b\n+c",
    ],
)
def test_a_patch_with_one_file_outside_the_workspace_changes_nothing(
    workspace: Path, section: str
) -> None:
    (workspace / "a").write_text("a\n")
    (workspace / "b").write_text("b\n")
    patch = f"*** Begin Patch\n*** Update File: a\n@@\n-a\n+b\n{section}\n*** End Patch"
    looks: list[tuple[str, dict[str, object]]] = [
        ("read_file", {"path": name}) for name in "ab"
    ]

    result = run_calls(workspace, *looks, ("apply_patch", {"patch": patch}))

    assert [d.tool for d in result.denials] == ["apply_patch"]
    assert (workspace / "a").read_text() == "a\n"
    assert tree(workspace.parent) == ["out", "ws", "ws/a", "ws/b"]


def test_a_patch_in_the_workspace_needs_no_approval_where_edits_need_none(
    workspace: Path,
) -> None:
    (workspace / "a").write_text("a\n")
    patch = "*** Begin Patch\n*** Update File: a\n@@\n-a\n+b\n*** Add File: c/d\n+new\n*** End Patch"

    result = run_calls(
        workspace, ("read_file", {"path": "a"}), ("apply_patch", {"patch": patch})
    )

    assert result.denials == ()
    assert (workspace / "a").read_text() == "b\n"
    assert (workspace / "c/d").read_text() == "new\n"


@contextmanager
def racing(workspace: Path) -> Iterator[None]:
    over = threading.Event()
    here, away = workspace / "d", workspace / "d2"
    here.mkdir()

    def race() -> None:
        while not over.is_set():
            with suppress(OSError):
                here.rename(away)
                here.symlink_to(workspace.parent / "out")
                here.unlink()
            with suppress(OSError):
                away.rename(here)

    racer = threading.Thread(target=race)
    racer.start()
    try:
        yield
    finally:
        over.set()
        racer.join()


@pytest.mark.slow
def test_a_write_allowed_inside_the_workspace_never_creates_a_file_outside(
    workspace: Path,
) -> None:
    """Between the verdict and the write, a thread replaces `d` by a link, again and again."""
    with racing(workspace):
        for turn in range(20):  # one ends after a few refusals
            run_calls(workspace, *(write(f"d/f{turn}-{n}") for n in range(5)))

    assert tree(workspace.parent / "out") == []
