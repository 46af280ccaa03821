"""/tasks: show the task board of the project."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line
from refold.views.task_list import count_line, task_lines, task_rows, with_names


async def run(context: CommandContext, arguments: str) -> None:
    """List the open tasks of the board, list all tasks, or show the task with a number."""
    board, width = context.session.workspace.tasks, context.look.width
    number = arguments.removeprefix("#")
    if number.isascii() and number.isdecimal():
        state = await anyio.to_thread.run_sync(board.read)
        (task,) = with_names([state.task(int(number))], context.session.view)
        context.show(*task_lines(task, width))
        return
    if arguments not in ("", "all"):
        raise BadInput(f"type /tasks, /tasks all or /tasks NUMBER, not /tasks {arguments}")
    state = await anyio.to_thread.run_sync(board.read)
    tasks = with_names(state.tasks, context.session.view)
    shows_all = arguments == "all"
    shown_tasks = [task for task in tasks if shows_all or task.open]
    if shown_tasks:
        context.show(*task_rows(shown_tasks, width))
    elif tasks:
        context.show(line("No task is open."))
    else:
        context.show(line("There are no tasks on the board."))
    if tasks:
        context.show(line(count_line(tasks), "dim"))
