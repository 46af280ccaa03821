"""/todos: the todo list and its progress."""

from refold.commands.command_context import CommandContext
from refold.views.styled import line
from refold.views.todo_list import checklist


async def run(here: CommandContext, rest: str) -> None:
    items = here.session.view.conversation.todos
    rows = checklist(items, here.look.room) or [line("There are no todos.")]
    here.show(*rows)
