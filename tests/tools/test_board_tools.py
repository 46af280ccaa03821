"""The tools of the task board, as a model calls them."""

from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import UNSET

from refold.app.lazy_dependencies import LazyBoard
from refold.errors import ToolFailed
from refold.session.redactor import Redactor
from refold.testing.places import ToolDirectory
from refold.tools.builtin import builtin
from refold.tools.contract import Reply
from refold.values.control import BoardTask, TasksChanged, Todo
from refold.values.display import Checklist, Note

TOOLS = {tool.name: tool for tool in builtin()}


def run_tool(place: ToolDirectory, tool: str, **arguments: object) -> Reply:
    return anyio.run(place.use, TOOLS[tool], arguments)


@pytest.fixture
def place(tmp_path: Path) -> ToolDirectory:
    return ToolDirectory(tmp_path)


def test_a_task_is_added_claimed_and_completed(place: ToolDirectory) -> None:
    place.call_id = "c1"
    added = run_tool(place, "task_create", subject="Parse", metadata={"file": "a.py"})
    place.call_id = "c2"
    run_tool(
        place, "task_create", subject="Test it", description="All of it.", blocked_by=[1]
    )
    place.call_id = "c3"
    claimed = run_tool(place, "task_claim")
    done = run_tool(place, "task_update", id=1, status="completed")

    assert added == Reply(
        "Added: #1 [pending] Parse\nfile: a.py",
        (Checklist((Todo("#1 Parse", "pending"),)),),
        control=TasksChanged((BoardTask(1, "Parse", metadata={"file": "a.py"}),)),
    )
    assert claimed.text == (
        "Yours now: #1 [in_progress] Parse (owner session; blocks #2)\nfile: a.py"
    )
    assert done.text == "Changed: #1 [done] Parse (owner session)\nfile: a.py"
    assert run_tool(place, "task_get", id=2) == Reply(
        "#2 [pending] Test it\nAll of it.", (Note("#2 [pending] Test it"),)
    )


def test_task_list_shows_open_free_or_all_tasks(place: ToolDirectory) -> None:
    none = run_tool(place, "task_list")
    for n, more in enumerate(({}, {"blocked_by": [1]}, {"owner": "ann"}, {})):
        place.call_id = f"c{n}"
        run_tool(place, "task_create", subject=f"task {n}", **more)
    run_tool(place, "task_update", id=4, status="cancelled")

    texts = {
        which: run_tool(place, "task_list", status=which).text.split("\n")
        for which in ("open", "free", "all")
    }

    assert none == Reply(
        "There are no open tasks on the board.",
        (Note("There are no open tasks on the board."),),
    )
    assert texts["open"] == [
        "#1 [pending] task 0 (blocks #2)", "#2 [pending] task 1 (waits for #1)",
        "#3 [pending] task 2 (owner ann)",
    ]  # fmt: skip
    assert texts["free"] == texts["open"][:1]
    assert texts["all"] == [*texts["open"], "#4 [cancelled] task 3"]


def test_a_call_repeated_after_a_crash_adds_and_claims_once(place: ToolDirectory) -> None:
    place.call_id = "c1"
    first = run_tool(place, "task_create", subject="a")
    again = run_tool(place, "task_create", subject="a")
    place.call_id = "c2"
    run_tool(place, "task_create", subject="b")
    place.call_id = "c3"
    claims = [run_tool(place, "task_claim") for _ in range(2)]

    assert (first, claims[0]) == (again, claims[1])
    assert run_tool(place, "task_list", status="all").text.split("\n") == [
        "#1 [in_progress] a (owner session)", "#2 [pending] b",
    ]  # fmt: skip


def test_refused_claims_and_damaged_boards_fail_the_call(
    tmp_path: Path,
) -> None:
    board = LazyBoard(tmp_path, Redactor())

    async def claim_refused() -> str:
        with pytest.raises(ToolFailed) as failure:
            await board.claim(7, "session", "key")
        return str(failure.value)

    absent = anyio.run(claim_refused)
    (tmp_path / "tasks.jsonl").write_text("no journal\n")
    damaged = anyio.run(claim_refused)

    assert absent == "There is no task 7 on the board: it has none."
    assert damaged.startswith(f"{tmp_path}/tasks.jsonl: line 1 of the journal is damaged")


def test_task_update_passes_only_the_fields_that_change() -> None:
    task_update = TOOLS["task_update"]

    arguments = task_update.parse(msgspec.json.encode({"id": 1, "owner": ""}))

    assert arguments == {"id": 1, "owner": ""}
    assert getattr(task_update.arguments(id=1), "subject", None) is UNSET
