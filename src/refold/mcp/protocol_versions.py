"""Decides which version of the protocol is used with a server, and when an older one is tried.

The SDK offers the newest version, and uses the version that the server answers. Two kinds of
server need more: one refuses unknown versions; the other accepts the newest, and then fails
with features that only older versions have, like questions during a tool call. `connection`
reconnects with the version chosen here, and `manifests` stores it.

A failed call is not repeated, since the tool may have done a part of its work: the model reads
what happened, and may call again. An older version is not always offered, because servers of
the newest version would lose features that only it has, such as headers for gateways.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from refold.mcp.flood import Streams

# Errors of SDKs when a tool asks something over a version without server requests.
_CANNOT_ASK = re.compile(
    r"no back-channel for server-initiated requests"
    r"|server-initiated requests (?:is|are) (?:unavailable|not available|not supported)",
    re.IGNORECASE,
)
_MAX_SEARCHED_CHARS = 4_000


def mode_for(version: str) -> str:
    """Return the SDK client's `mode` for a version; with "", the client chooses a version."""
    if not version:
        return "auto"
    return version if version in MODERN_PROTOCOL_VERSIONS else "legacy"


def older_version(error: BaseException | None, version: str) -> str:
    """Return the newest common version after a server refused `version`; "" if there is none.

    `error` is the refusal; for any other error, return "".
    """
    if not isinstance(error, MCPError):
        return ""
    try:
        supported = _Refusal.model_validate(error.error.data).supported
    except ValidationError:
        return ""
    common = [entry for entry in HANDSHAKE_PROTOCOL_VERSIONS if entry in supported]
    newest = common[-1] if common else ""
    return newest if newest != version else ""


def needs_older(version: str, answer: types.CallToolResult | MCPError) -> bool:
    """Return whether a call failed because the server cannot ask questions in this version."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        return False
    if isinstance(answer, MCPError):
        text = str(answer)
    elif answer.is_error:
        blocks = (b.text for b in answer.content if isinstance(b, types.TextContent))
        text = next(blocks, "")
    else:
        return False
    return _CANNOT_ASK.search(text[:_MAX_SEARCHED_CHARS]) is not None


@asynccontextmanager
async def offer_version(
    transport: AbstractAsyncContextManager[Streams], version: str
) -> AsyncGenerator[Any]:
    """Yield the streams of a transport, with this version in the `initialize` request.

    The SDK itself always requests the newest version that it knows.
    """
    async with transport as (read, write):
        if version in HANDSHAKE_PROTOCOL_VERSIONS and version != LATEST_HANDSHAKE_VERSION:
            yield read, _VersionedStream(write, version)
        else:
            yield read, write


class _Refusal(BaseModel):
    """The data of the error with which a server refuses a version."""

    supported: list[str]


class _VersionedStream(Struct):
    """A stream to the server that writes another version into the `initialize` request."""

    write: Any
    version: str

    async def send(self, item: Any) -> None:
        """Send a `SessionMessage`. An `initialize` request gets this version."""
        message = item.message
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            params = {**(message.params or {}), "protocolVersion": self.version}
            item.message = message.model_copy(update={"params": params})
        await self.write.send(item)

    async def aclose(self) -> None:
        await self.write.aclose()

    async def __aenter__(self) -> Self:
        await self.write.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self.write.__aexit__(*error)
