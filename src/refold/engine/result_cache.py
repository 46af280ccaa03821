"""Reuses the result of a read-only call while the file that it reads is unchanged.

A result is stored under the tool, its arguments, and the sha256 of the file's content before and after
the call. It is used again only if the file has that content now, so any change counts, also
one of another program. Only calls that depend on nothing but one file are stored: none that
reads a folder, runs a command or reaches the network. Each call is authorized as always;
`execute` does that before.

A result that is kept for a time would show a file as it was before an edit. The setting is
off: reading text is fast, and only PDF files and large notebooks take time.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256

from anyio import to_thread
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files
from refold.tools.contract import Reply, Tool
from refold.values.display import Note

_CACHED_TOOLS = ("read_file", "grep", "json_query")
_MAX_RESULTS = 200
_CACHE_NOTE = Note("from the cache: the file is unchanged")


class ResultCache:
    """The results of one session. They are in memory only."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, str], Reply] = {}

    async def get_reply(
        self,
        tool: Tool,
        arguments: Mapping[str, object],
        files: Files | None,
        run: Callable[[], Awaitable[Reply]],
    ) -> tuple[Reply, bool]:
        """The result of a call, and whether it was stored before. Raises what `run` raises."""
        hash_content = partial(_content_hash, tool, arguments, files)
        before = await to_thread.run_sync(hash_content)
        if not before:
            return await run(), False
        key = (json.dumps([tool.name, arguments], sort_keys=True), before)
        if (cached := self._replies.pop(key, None)) is not None:
            self._replies[key] = cached  # the last one used goes to the end
            return replace(cached, shown=(*cached.shown, _CACHE_NOTE)), True
        reply = await run()
        if await to_thread.run_sync(hash_content) == before and not reply.images:
            self._replies[key] = reply
            if len(self._replies) > _MAX_RESULTS:
                del self._replies[next(iter(self._replies))]
        return reply, False


def _content_hash(tool: Tool, arguments: Mapping[str, object], files: Files | None) -> str:
    """The path and sha256 of the one file that decides the result; "" if there is none."""
    if tool.name not in _CACHED_TOOLS or files is None:
        return ""
    try:
        (real,) = [files.real(path) for path in tool.names_files(arguments)]
        if files.kind(real) != "file":
            return ""
        return f"{real} {sha256(files.read(real)).hexdigest()}"
    except (ToolFailed, ValueError):  # the tool reports it better
        return ""
