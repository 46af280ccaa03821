"""/todos: show the todo list and its progress."""

from refold.commands.command_context import CommandContext
from refold.views.styled import line
from refold.views.todo_list import checklist


async def run(context: CommandContext, arguments: str) -> None:
    items = context.session.view.conversation.todos
    rows = checklist(items, context.look.width) or [line("There are no todos.")]
    context.show(*rows)
