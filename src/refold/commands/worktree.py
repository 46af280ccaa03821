"""/worktree: list the git worktrees of this repository, enter, leave or remove one.

The session creates and removes worktrees. Uncommitted work is removed only if the user agrees.
"""

from refold.client.protocol import EnterWorktree, LeaveWorktree, RemoveWorktree
from refold.commands.command_context import CommandContext
from refold.commands.session_lines import directory_name, heading
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.styled import line

_USAGE_TEXT = (
    "type /worktree [NAME], /worktree leave or /worktree remove [NAME], not {typed!r}"
)
_NEW_NOTE = "It is new: what is not committed is not in it. /worktree leave goes back."
_REMOVED_NOTE = "The worktree is removed. Its branch stays if it has commits of its own."
_NONE_NOTE = "There are no worktrees besides this one. /worktree NAME makes one."


async def run(context: CommandContext, arguments: str) -> None:
    """List, leave, remove or enter a worktree. A single other word is a worktree to enter."""
    word, _, rest = arguments.partition(" ")
    name = rest.strip()
    match word:
        case "" | "list" if not name:
            await _list(context)
        case "leave" if not name:
            left_worktree = context.session.view.session.worktree
            await context.session.send(LeaveWorktree())
            context.show(heading(context.session))
            if left_worktree is not None:
                notice = f"The worktree {directory_name(left_worktree.tree)} is kept."
                context.show(line(notice, "dim"))
        case "remove":
            await _remove(context, name)
        case "enter" if name and " " not in name:
            await _enter(context, name)
        case _ if not name:
            await _enter(context, word)
        case _:
            raise BadInput(_USAGE_TEXT.format(typed=f"/worktree {arguments}"))


async def _enter(context: CommandContext, name: str) -> None:
    """Switch the session to the worktree `name`, which is created if it does not exist."""
    worktrees = await context.session.workspace.worktree.list_worktrees()
    earlier_directories = {tree.directory for tree, _state in worktrees}
    await context.session.send(EnterWorktree(name))
    context.show(heading(context.session))
    entered = context.session.view.session.worktree
    if entered is not None and entered.tree not in earlier_directories:
        context.show(line(_NEW_NOTE, "dim"))


async def _list(context: CommandContext) -> None:
    """List the worktrees, each with its branch and what its removal would lose."""
    entered = context.session.view.session.worktree
    worktrees = await context.session.workspace.worktree.list_worktrees()
    for tree, state in worktrees:
        mark = "*" if entered is not None and entered.tree == tree.directory else " "
        branch = escape_to_one_line(tree.branch or "no branch")
        loss_text = f"  {state.loss}" if state.loss else ""
        context.show(line(f"{mark} {directory_name(tree.directory)}  {branch}{loss_text}"))
    if not worktrees:
        context.show(line(_NONE_NOTE, "dim"))


async def _remove(context: CommandContext, name: str) -> None:
    """Remove a worktree, and ask before something is lost.

    Show the heading if the session was in the worktree, because then the directory has changed.
    """
    old_worktree = context.session.view.session.worktree
    try:
        await context.session.send(RemoveWorktree(name))
    except BadInput as error:
        # other refusals, such as an unknown name, cannot be overridden
        if "which would be lost" not in str(error):
            raise
        context.show(line(f"{escape_to_one_line(str(error))}.", "warn"))
        if await context.ask("Remove it anyway?", "yn") != "y":
            context.show(line("Nothing was removed.", "dim"))
            return
        await context.session.send(RemoveWorktree(name, force=True))
    context.show(line(_REMOVED_NOTE, "dim"))
    if old_worktree is not None and context.session.view.session.worktree is None:
        context.show(heading(context.session))
