"""The tool `notebook_edit`: changes one cell of a Jupyter notebook.

`notebook_cells` changes the text; `document_text` renders notebooks for reading.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal, TypeAlias

from anyio import to_thread
from msgspec import Meta

from refold.place.port import Files
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect

Kind: TypeAlias = Literal["same", "code", "markdown", "raw"]
Mode: TypeAlias = Literal["replace", "insert", "delete"]


@tool(Effect.CHANGE, path="path", dry_run=True)
async def notebook_edit(  # noqa: PLR0913 - the parameters are the schema
    path: str,
    cell: Annotated[
        str | int,
        Meta(description="id or number; insert: after it"),
    ],
    source: str = "",
    kind: Kind = "same",
    mode: Mode = "replace",
    *,
    files: Files,
    known: Mapping[str, str],
) -> Reply:
    """Change one cell of a Jupyter notebook that was read before."""
    from refold.tools.notebook_cells import CellEdit, edit_cell  # few sessions need it

    edit = CellEdit(cell, source, kind, mode)
    return await to_thread.run_sync(partial(edit_cell, path, edit, files, known))
