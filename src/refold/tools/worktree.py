"""The tools `enter_worktree` and `exit_worktree`: move a session to a git worktree and back.

`app.entered_worktree` creates and removes worktrees, and records where the session works.
Before a worktree is removed in which something would be lost, the user is asked in every mode.
"""

from typing import Annotated, Literal, Protocol

from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Context, Reply, tool
from refold.values.display import Note
from refold.values.tools import Effect

_REMOVE, _KEEP = "Remove it", "Keep it"
_REMOVE_QUESTION = "Remove the worktree {tree}? It has {loss}, which would be lost."
_NO_USER = "Not removed: {tree} has {loss}. {why} Commit the work, or call exit_worktree with keep."


class WorktreeSwitch(Protocol):
    """Changes where a session works. All methods raise `ToolFailed`, with nothing changed.

    `call` is the id of the tool call, which must be the only open call.
    """

    async def enter(self, name: str, branch: str, call: str) -> str:
        """Let the session work in a worktree from the next step on. Return a sentence about
        its place.
        """
        ...

    async def describe_loss(self) -> tuple[str, str]:
        """Return the worktree of the session, and what its removal would lose.

        The second text is "" if nothing would be lost.
        """
        ...

    async def leave(self, *, remove: bool, call: str) -> str:
        """Let the session work in its own directory again.

        Return a sentence about what happened to the worktree.
        """
        ...


@tool(Effect.RUN, subject="name")
async def enter_worktree(
    name: Annotated[
        str, Meta(description="of the worktree: it gets the branch refold/NAME")
    ] = "",
    branch: Annotated[
        str, Meta(description="an existing branch to check out instead of a new one")
    ] = "",
    *,
    worktrees: WorktreeSwitch,
    call: str,
) -> Reply:
    """Make a git worktree beside the repository, or use the one of that name, and work there from the next step on. What is not committed here is not in it. Call it alone."""
    if not name and not branch:
        raise ToolFailed("Give a name or a branch. Nothing was done.")
    summary = await worktrees.enter(name, branch, call)
    return Reply(summary, (Note(summary.partition(". ")[0]),))


@tool(Effect.RUN, subject="action")
async def exit_worktree(
    action: Annotated[
        Literal["keep", "remove"], Meta(description="what becomes of the worktree")
    ],
    *,
    worktrees: WorktreeSwitch,
    call: str,
    context: Context,
) -> Reply:
    """Leave the worktree, and work in the session's own directory again. The user is asked before uncommitted changes are removed; committed work stays on its branch. Call it alone."""
    tree, loss = await worktrees.describe_loss()
    if action == "remove" and loss:
        question = _REMOVE_QUESTION.format(tree=tree, loss=loss)
        try:
            answer = await context.ask(question, (_REMOVE, _KEEP))
        except ToolFailed as error:
            why = str(error)
            raise ToolFailed(_NO_USER.format(tree=tree, loss=loss, why=why)) from error
        if answer != _REMOVE:
            raise ToolFailed(
                f"Not removed: the user answered {answer!r}. The session still works in {tree}."
            )
    summary = await worktrees.leave(remove=action == "remove", call=call)
    return Reply(summary, (Note(summary),))
