"""Results of read-only calls are reused while their file is unchanged, and never otherwise."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold import Agent
from refold.journal.events.kinds import Ended, Entry
from refold.testing.providers import ScriptedProvider

Edit = Callable[[Path], object]
READ = ("read_file", {"path": "a.txt"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a.txt").write_text("one\n")


def run_calls(
    tmp_path: Path,
    *calls: tuple[str, dict[str, Any]],
    edit: Edit | None = None,
    settings: dict[str, object] | None = None,
) -> list[Ended]:
    """Return how the calls ended, each in a turn of its own; `edit` is done before the
    last.
    """

    async def run() -> list[Ended]:
        replies: list[Any] = []
        for name, arguments in calls:
            replies += [[(name, json.dumps(arguments))], "Done."]
        agent = Agent(
            provider=ScriptedProvider(*replies),
            directory=tmp_path / "work",
            builtin=True,
            mode="bypass",
            settings={"result_cache": True, **(settings or {})},
        )
        endeds = list[Ended]()
        async with agent.session() as session:
            for number in range(len(calls)):
                if edit and number == len(calls) - 1:
                    edit(tmp_path / "work")
                async with session.stream("Go.") as frames:
                    items = [frame.item async for frame in frames]
                endeds += [
                    i.event
                    for i in items
                    if isinstance(i, Entry) and isinstance(i.event, Ended)
                ]
        return endeds

    return anyio.run(run)


@pytest.mark.slow
def test_repeated_read_returns_the_cached_result_and_is_marked_as_cached(
    tmp_path: Path,
) -> None:
    first, second = run_calls(tmp_path, READ, READ)

    assert [first.cached, second.cached] == [False, True]
    assert (second.text, second.file_hashes) == (first.text, first.file_hashes)
    assert second.text == "1\tone\n(1 line)"
    assert [part.text for part in second.shown] == [
        "read a.txt, 1 line", "from the cache: the file is unchanged",
    ]  # fmt: skip


@pytest.mark.slow
def test_result_cache_is_off_by_default(tmp_path: Path) -> None:
    result = run_calls(tmp_path, READ, READ, settings={"result_cache": False})

    assert [item.cached for item in result] == [False, False]


def edit_with_same_size_and_time(workspace: Path) -> None:
    file = workspace / "a.txt"
    about = file.stat()
    file.write_text("two\n")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def edit_another_file(workspace: Path) -> None:
    (workspace / "b.txt").write_text("two\n")
    (workspace / "a.txt").unlink()
    (workspace / "a.txt").symlink_to("b.txt")


@pytest.mark.slow
@pytest.mark.parametrize("edit", [edit_with_same_size_and_time, edit_another_file])
def test_edit_by_another_program_is_seen_by_the_next_read(
    tmp_path: Path, edit: Edit
) -> None:
    first, second = run_calls(tmp_path, READ, READ, edit=edit)

    assert [first.cached, second.cached] == [False, False]
    assert second.text == "1\ttwo\n(1 line)"


@pytest.mark.slow
def test_cached_result_is_not_used_for_a_deleted_file_but_again_once_restored(
    tmp_path: Path,
) -> None:
    remove = ("bash", {"command": "rm a.txt"})

    def restore_file(workspace: Path) -> None:
        (workspace / "a.txt").write_text("one\n")

    result = run_calls(tmp_path, READ, remove, READ, READ, edit=restore_file)

    assert (result[2].outcome, result[2].cached) == ("failed", False)
    assert (result[3].text, result[3].cached) == (result[0].text, True)


@pytest.mark.slow
def test_own_edit_or_other_arguments_bypass_the_cached_result(tmp_path: Path) -> None:
    write = ("write_file", {"path": "a.txt", "content": "new\n"})
    result = run_calls(
        tmp_path, READ, write, READ, ("read_file", {"path": "a.txt", "first": 1})
    )

    assert [item.cached for item in result] == [False] * 4
    assert result[2].text == "1\tnew\n(1 line)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ("bash", {"command": "cat a.txt"}),
        ("grep", {"pattern": "one"}),
        ("list_files", {}),
        ("glob", {"pattern": "*.txt"}),
    ],
)
def test_result_of_a_folder_listing_or_command_is_never_reused(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    assert [item.cached for item in run_calls(tmp_path, call, call)] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ("grep", {"pattern": "one", "path": "a.txt"}),
        ("json_query", {"expression": "length(@)", "path": "a.json"}),
    ],
)
def test_search_of_one_file_is_reused_until_that_file_changes(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    def edit(workspace: Path) -> None:
        (workspace / "a.txt").write_text("one\none\n")
        (workspace / "a.json").write_text("[1, 2]")

    (tmp_path / "work/a.json").write_text("[1]")
    result = run_calls(tmp_path, call, call, call, edit=edit)

    assert [item.cached for item in result] == [False, True, False]
    assert result[2].text != result[1].text


@pytest.mark.slow
def test_deny_rule_takes_precedence_over_the_result_cache(tmp_path: Path) -> None:
    denied: dict[str, object] = {"permissions.deny": ["read_file(a.txt)"]}
    (result,) = run_calls(tmp_path, READ, settings=denied)

    assert (result.outcome, result.cached) == ("refused", False)
