"""Reuses the result of a read-only call while the file that it reads is unchanged.

A result is stored under the tool, its arguments, and the sha256 of the file's content
before and after the call. It is used again only if the file has that content now, so a
change by another program is noticed, too. Only calls that depend on exactly one file are
stored: none that reads a folder, runs a command or uses the network. Each call is
authorized as usual; `execute` does that before.

A cache with a time limit would show a file as it was before an edit. The setting is off by
default: reading text is fast, and only PDF files and large notebooks take time.
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
    """The cached results of one session, in memory."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, str], Reply] = {}

    async def get_reply(
        self,
        tool: Tool,
        arguments: Mapping[str, object],
        files: Files | None,
        run: Callable[[], Awaitable[Reply]],
    ) -> tuple[Reply, bool]:
        """Return the result of a call, and whether it comes from the cache.

        `run` is called to execute the call if no result is cached. Its exceptions are passed
        on.
        """
        hash_content = partial(_content_hash, tool, arguments, files)
        before = await to_thread.run_sync(hash_content)
        if not before:
            return await run(), False
        key = (json.dumps([tool.name, arguments], sort_keys=True), before)
        if (cached := self._replies.pop(key, None)) is not None:
            self._replies[key] = cached  # the last one used moves to the end
            return replace(cached, shown=(*cached.shown, _CACHE_NOTE)), True
        reply = await run()
        if await to_thread.run_sync(hash_content) == before and not reply.images:
            self._replies[key] = reply
            if len(self._replies) > _MAX_RESULTS:
                del self._replies[next(iter(self._replies))]
        return reply, False


def _content_hash(tool: Tool, arguments: Mapping[str, object], files: Files | None) -> str:
    """Return the path and the sha256 of the only file on which the result depends; "" if the
    result must not be cached.
    """
    if tool.name not in _CACHED_TOOLS or files is None:
        return ""
    try:
        paths = [files.real(path) for path in tool.names_files(arguments)]
        if len(paths) != 1 or files.kind(paths[0]) != "file":
            return ""
        return f"{paths[0]} {sha256(files.read(paths[0])).hexdigest()}"
    except (ToolFailed, ValueError):  # the tool reports what is wrong with the path
        return ""
