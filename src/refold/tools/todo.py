"""The tool `todo_write`: the checklist of the session, kept by the model."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from refold.tools.contract import Reply, tool
from refold.values.control import Todo, Todos
from refold.values.display import Checklist
from refold.values.tools import Effect

MOST = 100


class Item(Struct, frozen=True):
    """A todo as a model writes it: many say "completed", as other agents have it."""

    subject: str
    status: Literal["pending", "in_progress", "done", "cancelled", "completed"] = "pending"


@tool(Effect.SELF)
async def todo_write(
    todos: Annotated[
        tuple[Item, ...],
        Meta(max_length=MOST, description="the whole list as it is from now on"),
    ],
) -> Reply:
    """Keep a checklist of a task with three or more steps: write it when you begin, and again whenever something is done, with exactly one item in_progress."""
    items = tuple(
        Todo(each.subject, "done" if each.status == "completed" else each.status)
        for each in todos
    )
    left = sum(todo.open for todo in items)
    text = f"{len(todos)} todos, {left} of them open." if todos else "No todos any more."
    under_way = [todo.subject for todo in items if todo.status == "in_progress"]
    if len(under_way) > 1:
        text += " More than one is in_progress: work on one at a time."
    return Reply(text, (Checklist(items),), control=Todos(items))
