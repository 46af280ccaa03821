"""The checklist of the session: the model keeps it, the person watches it."""

from typing import Annotated

from msgspec import Meta

from refold.tools.contract import Reply, tool
from refold.values.control import Todos
from refold.values.shown import Checklist
from refold.values.todos import Todo
from refold.values.tools import Effect

MOST = 100


@tool(Effect.SELF)
async def todo_write(
    todos: Annotated[
        tuple[Todo, ...],
        Meta(max_length=MOST, description="the whole list as it is from now on"),
    ],
) -> Reply:
    """Keep a checklist of a task with three or more steps: write it when you begin, and again whenever something is done, with exactly one item in_progress."""
    left = sum(todo.open for todo in todos)
    text = f"{len(todos)} todos, {left} of them open." if todos else "No todos any more."
    under_way = [todo.subject for todo in todos if todo.status == "in_progress"]
    if len(under_way) > 1:
        text += " More than one is in_progress: work on one at a time."
    return Reply(text, (Checklist(todos),), control=Todos(todos))
