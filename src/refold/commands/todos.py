"""/todos: the todo list and its progress."""

from refold.terminal.terminal import Terminal
from refold.views.styled import line
from refold.views.todo_list import checklist


async def run(here: Terminal, rest: str) -> None:
    items = here.session.view.conversation.todos
    rows = checklist(items, here.printer.room) or [line("There are no todos.")]
    here.printer.lines(rows)
