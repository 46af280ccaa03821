"""The tools that change only the session: todos and compaction."""

import anyio
import pytest

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory, temporary_place
from refold.tools.contract import Reply, Tool
from refold.tools.todo import MAX_TODOS, todo_write
from refold.tools.turn_control import compact
from refold.values.control import Compact, Todo, Todos
from refold.values.display import Checklist


def run_tool(tool: Tool, arguments: dict[str, object]) -> Reply:
    with temporary_place() as place:
        return anyio.run(ToolDirectory.use, place, tool, arguments)


def test_todo_write_replaces_the_list_and_shows_it_to_the_user() -> None:
    reply = run_tool(
        todo_write,
        {
            "todos": [
                {"subject": "look", "status": "completed"},
                {"subject": "write", "status": "in_progress"},
                {"subject": "check"},
            ]
        },
    )

    items = (Todo("look", "done"), Todo("write", "in_progress"), Todo("check"))
    assert reply == Reply(
        "3 todos, 2 of them open.", (Checklist(items),), control=Todos(items)
    )


def test_an_empty_list_clears_the_todos() -> None:
    reply = run_tool(todo_write, {"todos": []})

    assert (reply.text, reply.control) == ("No todos any more.", Todos(()))


def test_more_than_one_todo_in_progress_is_reported() -> None:
    todos = [{"subject": name, "status": "in_progress"} for name in "ab"]

    assert run_tool(todo_write, {"todos": todos}).text == (
        "2 todos, 2 of them open. More than one is in_progress: work on one at a time."
    )


@pytest.mark.parametrize(
    "todos",
    [[{"subject": "a", "status": "half"}], [{}], [{"subject": "a"}] * (MAX_TODOS + 1)],
)
def test_an_invalid_todo_list_is_refused_completely(todos: list[dict[str, object]]) -> None:
    with pytest.raises(ToolFailed, match="Nothing was done"):
        run_tool(todo_write, {"todos": todos})


@pytest.mark.parametrize("kind", ["full", "prune"])
def test_compact_requests_a_compaction_of_the_given_kind(kind: str) -> None:
    reply = run_tool(compact, {"focus": "the keys", "kind": kind})

    assert reply.control == Compact(kind, "the keys")  # type: ignore[arg-type]
