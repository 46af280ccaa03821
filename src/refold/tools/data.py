"""The tools `json_query` and `calc`: query JSON and compute without running a program.

`exact_calc` evaluates expressions. `json_query` runs in a process with limits. `python_tool`
runs Python code.
"""

from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from refold.errors import JournalError, ToolFailed
from refold.place.port import Files
from refold.tools.contract import Reply, tool
from refold.tools.read import BLOB_PREFIX, BlobReader
from refold.values.display import Note
from refold.values.tools import Effect


@tool(Effect.LOOK, path="path")
async def json_query(
    expression: Annotated[str, Meta(description="like people[?age > `30`].name")],
    path: Annotated[str, Meta(description="a JSON file, JSON Lines, or blob:…")] = "",
    json: Annotated[str, Meta(description="the data itself, instead of a path")] = "",
    *,
    files: Files,
    blobs: BlobReader,
) -> Reply:
    """Query JSON with a JMESPath expression."""
    if bool(path) == bool(json):
        raise ToolFailed("Give either a path or the json itself.")
    name = path or "the json"
    if not path:
        content = json.encode(errors="replace")
    elif path.startswith(BLOB_PREFIX):
        try:
            content = await blobs.get(path.removeprefix(BLOB_PREFIX))
        except JournalError as error:
            raise ToolFailed(
                f"There is no {path!r}: use the name as it was given."
            ) from error
    else:
        real = files.real(path)
        content = await to_thread.run_sync(files.read, real)
        name = files.display_name(real)
    from refold.tools.jmespath_query import query

    result = await to_thread.run_sync(partial(query, content, expression, name))
    return Reply(result, (Note(f"queried {name}, {len(result):,} characters"),))


@tool(Effect.LOOK)
async def calc(expression: str) -> Reply:
    """Calculate exactly: + - * / // % **, fractions, decimals, sqrt, log, round, factorial, comb, gcd, sum, min, max, pi."""
    from refold.tools.exact_calc import calculate

    result = await to_thread.run_sync(calculate, expression)
    return Reply(result, (Note(result[:200]),))
