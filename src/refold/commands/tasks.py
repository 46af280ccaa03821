"""/tasks: the task board of the project."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line
from refold.views.task_list import count_line, task_lines, task_rows, with_names


async def run(here: CommandContext, rest: str) -> None:
    board, room = here.session.workspace.tasks, here.look.room
    number = rest.removeprefix("#")
    if number.isascii() and number.isdecimal():
        state = await anyio.to_thread.run_sync(board.read)
        named = with_names([state.task(int(number))], here.session.view)
        here.show(*task_lines(named[0], room))
        return
    if rest not in ("", "all"):
        raise BadInput(f"type /tasks, /tasks all or /tasks NUMBER, not /tasks {rest}")
    state = await anyio.to_thread.run_sync(board.read)
    every = with_names(state.tasks, here.session.view)
    rows = task_rows([task for task in every if rest or task.open], room)
    none = "There are no tasks on the board." if rest or not every else "No task is open."
    here.show(*rows or [line(none)])
    if every:
        here.show(line(count_line(every), "dim"))
