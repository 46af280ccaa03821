"""Files of a conversation's workspace: listed, downloaded, uploaded.

Everything goes through the file module of `place`, as the tools do: no link leads out, and
what a rule keeps from being read is not there. A download is always an attachment that no
browser runs or shows on our origin; what a page shows of a file is in `previews`.
"""

import hashlib
import os
from typing import Annotated
from urllib.parse import quote

from anyio import to_thread
from fastapi import Header, Query, Request, Response
from msgspec import Struct

from refold.client.host import Conversation, Host
from refold.client.types import FileExists, Files, OtherContent, Protected, Real, Upload
from refold.errors import BadInput, ToolFailed
from refold.server.api import Api, NotThere, json_response
from refold.server.rest import CONVERSATION_PATH, open_conversation

_FILES_PATH = f"{CONVERSATION_PATH}/files"
_BINARY_TYPE = "application/octet-stream"
_RENAME_ADVICE = "keep a file that is there, and store this one as name-1"
_IF_MATCH = "the ETag of the file to be replaced, or *"


class WorkspaceFile(Struct, frozen=True):
    """`kind` is file, directory, link or other; `path` is relative to the workspace."""

    path: str
    name: str
    kind: str
    size: int
    modified: float  # seconds since 1970


class Uploaded(Struct, frozen=True):
    path: str
    size: int


# pyright: reportUnusedFunction=false
# Each function below is a route: it is called by FastAPI.
def add_files(api: Api, host: Host) -> None:
    @api.route("GET", _FILES_PATH, list[WorkspaceFile])
    async def list_directory(
        id_: str, path: Annotated[str, Query(max_length=4096)] = ""
    ) -> Response:
        """A directory of the workspace, without what may not be read."""
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(_entries, chat, path))

    @api.route("GET", f"{_FILES_PATH}/{{path:path}}", _BINARY_TYPE)
    async def download(id_: str, path: str) -> Response:
        """A file of the workspace, as an attachment."""
        chat = await open_conversation(host, id_)
        data = await to_thread.run_sync(read_file, chat, path)
        headers = {**_attachment(path), "etag": _etag(data)}
        return Response(data, media_type=_BINARY_TYPE, headers=headers)

    @api.route(
        "PUT", f"{_FILES_PATH}/{{path:path}}", Uploaded, status=201, body=_BINARY_TYPE
    )
    async def upload(
        request: Request,
        id_: str,
        path: str,
        rename: Annotated[bool, Query(description=_RENAME_ADVICE)] = False,
        if_match: Annotated[str, Header(max_length=200, description=_IF_MATCH)] = "",
    ) -> Response:
        """Put a file into the workspace, whole or not at all, with checkpoints around it.

        If a file is there, the response is 428, unless `If-Match` has its ETag or `*`; 412 if it
        has changed. With `rename` both stay, and the response has the new name. Protected files,
        and those that a rule forbids to write, are 403.
        """
        chat = await open_conversation(host, id_)
        data = await request.body()
        await to_thread.run_sync(_find_path, chat, path)
        wanted = Upload(path, data, _digest(if_match), rename)
        try:
            path = await chat.session.workspace.upload(wanted)
        except (FileExists, OtherContent, Protected):
            raise
        except BadInput as error:
            raise NotThere(str(error)) from error
        result = Uploaded(path, len(data))
        return json_response(result, 201, {"etag": _etag(data)})


def _find_path(chat: Conversation, path: str) -> tuple[Files, Real]:
    """Return the files of the workspace, and the real path that `path` names."""
    parts = path.split("/")
    wrong = ("", ".", "..") if path else ()
    if "\\" in path or "\0" in path or any(part in wrong for part in parts):
        raise NotThere(f"there is no file {path!r} in this workspace")
    files = chat.session.workspace.files.only(())
    try:
        real = files.real(path or ".")
        hidden = files.outside(real) is not None or files.why_unreadable(real)
    except ToolFailed:
        hidden, real = "it leads elsewhere", None
    if hidden or real is None:
        raise NotThere(f"there is no file {path!r} in this workspace")
    return files, real


def _entries(chat: Conversation, path: str) -> list[WorkspaceFile]:
    files, real = _find_path(chat, path)
    if files.kind(real) != "directory":
        raise NotThere(f"there is no directory {path!r} in this workspace")
    return [
        WorkspaceFile(
            os.path.join(path, item.name).encode(errors="replace").decode(),
            item.name.encode(errors="replace").decode(),
            item.kind,
            item.size,
            item.modified / 1e9,
        )
        for item in files.items(real)
    ]


def read_file(chat: Conversation, path: str) -> bytes:
    """Return a file of the workspace. Raises `NotThere`."""
    files, real = _find_path(chat, path)
    try:
        return files.read(real)
    except ToolFailed as error:
        raise NotThere(f"{path!r} cannot be downloaded: {error}") from error


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'


def _digest(if_match: str) -> str:
    """Return the SHA-256 of `If-Match`, or "*"; "" for none."""
    return if_match.strip().removeprefix("W/").strip('"')


def _attachment(path: str) -> dict[str, str]:
    """Return an RFC 6266 header: a name that every browser reads, and the exact one."""
    name = path.rpartition("/")[2]
    ascii_name = "".join(
        c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name
    )
    exact = quote(name, safe="", errors="replace")
    return {
        "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{exact}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
