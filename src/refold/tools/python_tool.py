"""The tool `python`: runs code in a Python process of the session, whose variables persist.

The port `Repl` implements limits, snapshots and the functions that code may call.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from refold.tools.contract import Reply, tool
from refold.values.control import Control
from refold.values.display import Note
from refold.values.tools import Effect

TOOL_NAME = "python"


class PythonResult(Struct, frozen=True):
    """What the model gets after code has run. `final` is set if the code ended the turn."""

    text: str
    final: Control | None = None
    summary: str = ""  # one line for the user


class Repl(Protocol):
    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        """Run the cells in order, until one fails or ends the turn. Raises `ToolFailed`.

        `progress` gets output while they run.
        """
        ...


@tool(Effect.LOOK)
async def python(
    code: Annotated[
        str | tuple[str, ...],
        Meta(description="Python, or a list of cells that run one after the other."),
    ],
    *,
    repl: Repl,
    call: str,
    progress: Callable[[str], None],
) -> Reply:
    """Run Python. Variables, functions and imports stay for the next call. Functions that
    are there: lm(input, query) asks a model about a text, map_lm(inputs, query) about each
    of many; FINAL(value) ends the task with this answer.

    It can read the workspace, and can change nothing and reach no network.
    """
    cells = (code,) if isinstance(code, str) else code
    result = await repl.run(call, cells, progress)
    return Reply(
        result.text, (Note(result.summary),) if result.summary else (), control=result.final
    )
