"""Adds servers to a file of MCP servers, and removes servers from it.

The servers may be in an object `mcpServers` or at the top of the file. Everything else in the
file stays unchanged. `servers` reads the files.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from refold.errors import BadInput, reason_of
from refold.mcp.servers import server
from refold.place.private_files import file_lock, write
from refold.safe_open import read_regular

_SERVERS_KEY = "mcpServers"
_MAX_FILE_BYTES = 64 * 1024  # the same limit as for all settings


def add(file: Path, name: str, config: dict[str, Any], *, replace: bool = False) -> None:
    """Add a server to the file. Raises `BadInput` if it is invalid.

    Also raises `BadInput` if the name is taken, unless `replace` is true.
    """
    server(name, config, str(file))
    with _edit_servers(file) as servers:
        if name in servers and not replace:
            raise BadInput(
                f"{file} has an MCP server {name!r}: remove it first, or choose another name"
            )
        servers[name] = config


def remove(file: Path, name: str) -> bool:
    """Remove a server from the file. Return whether it was there. Raises `BadInput`."""
    if not file.exists():
        return False
    with _edit_servers(file) as servers:
        was_there = name in servers
        servers.pop(name, None)
        return was_there


@contextmanager
def _edit_servers(file: Path) -> Generator[dict[str, Any]]:
    """Yield the servers in the file, and write the file if the block has changed them."""
    try:
        with file_lock(file):
            document = _read(file)
            servers = _servers(document)
            before = dict(servers)
            yield servers
            if servers != before:
                write(file, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {reason_of(error)}") from error


def _read(file: Path) -> dict[str, Any]:
    """Return the JSON object in the file; without a file, an object without servers."""
    try:
        content, _ = read_regular(file, _MAX_FILE_BYTES)
        value: object = json.loads(content)
    except FileNotFoundError:
        return {_SERVERS_KEY: {}}
    except ValueError as error:
        raise BadInput(f"{file} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{file} holds no object of servers")
    return cast("dict[str, Any]", value)


def _servers(document: dict[str, Any]) -> dict[str, Any]:
    """Return the object `mcpServers` of the document, or the document if it has none."""
    servers = document.get(_SERVERS_KEY, document)
    if not isinstance(servers, dict):
        raise BadInput(f"{_SERVERS_KEY} is not an object of servers")
    return cast("dict[str, Any]", servers)
