"""Serves the files of a conversation's workspace over REST: lists, downloads, uploads.

Files are accessed as by tools, through `place`: no symbolic link leads out of the
workspace, and a file that a rule hides seems not to exist. A download is always an
attachment, so no browser runs or shows it on our origin. `previews` serves what pages show
of a file.
"""

import hashlib
import os
import re
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
# FastAPI calls each function below as a route.
def add_files(api: Api, host: Host) -> None:
    @api.route("GET", _FILES_PATH, list[WorkspaceFile])
    async def list_directory(
        id_: str, path: Annotated[str, Query(max_length=4096)] = ""
    ) -> Response:
        """List a directory of the workspace, without files that may not be read."""
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(_entries, chat, path))

    @api.route("GET", f"{_FILES_PATH}/{{path:path}}", _BINARY_TYPE)
    async def download(id_: str, path: str) -> Response:
        """Return a file of the workspace, as an attachment."""
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
        """Write a file into the workspace, completely or not at all, with checkpoints
        around it.

        If a file with this name exists, `If-Match` must have its ETag or `*`; the response
        is 428 without `If-Match`, and 412 if the file has another ETag. With `rename`, the
        existing file stays, and the response has the name of the new file. The response is
        403 for a file that is protected, or that a rule forbids to write.
        """
        chat = await open_conversation(host, id_)
        data = await request.body()
        await to_thread.run_sync(_find_path, chat, path)
        upload_request = Upload(path, data, _digest(if_match), rename)
        try:
            stored_path = await chat.session.workspace.upload(upload_request)
        except (FileExists, OtherContent, Protected):  # have statuses of their own
            raise
        except BadInput as error:
            raise NotThere(str(error)) from error
        result = Uploaded(stored_path, len(data))
        return json_response(result, 201, {"etag": _etag(data)})


def _find_path(chat: Conversation, path: str) -> tuple[Files, Real]:
    """Return access to the workspace's files, and the real path of `path`.

    "" is the workspace itself. Raises `NotThere` if the path leads out of the workspace, or
    if a rule hides the file.
    """
    names = path.split("/") if path else []
    has_empty_or_dots = any(name in ("", ".", "..") for name in names)
    if has_empty_or_dots or "\\" in path or "\0" in path:
        raise NotThere(f"there is no file {path!r} in this workspace")
    files = chat.session.workspace.files.only(())
    try:
        real = files.real(path or ".")
        is_hidden = files.outside(real) is not None or bool(files.why_unreadable(real))
    except ToolFailed as error:  # the path leads out of the workspace
        raise NotThere(f"there is no file {path!r} in this workspace") from error
    if is_hidden:
        raise NotThere(f"there is no file {path!r} in this workspace")
    return files, real


def _entries(chat: Conversation, path: str) -> list[WorkspaceFile]:
    """Return the entries of a directory. In a name, `?` replaces each byte that is not a
    character.

    Raises `NotThere` if `path` is not a directory.
    """
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
    """Return the content of a file. Raises `NotThere` if it cannot be read."""
    files, real = _find_path(chat, path)
    try:
        return files.read(real)
    except ToolFailed as error:
        raise NotThere(f"{path!r} cannot be downloaded: {error}") from error


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'


def _digest(if_match: str) -> str:
    """Return the value of the header `If-Match` without quotes: a SHA-256 or "*".

    Return "" if the header is empty.
    """
    return if_match.strip().removeprefix("W/").strip('"')


def _attachment(path: str) -> dict[str, str]:
    """Return the headers that make a browser save a file instead of showing it.

    The headers have the name of the file twice, as in RFC 6266: in ASCII for old browsers,
    and exactly.
    """
    _, _, name = path.rpartition("/")
    ascii_name = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    exact = quote(name, safe="", errors="replace")
    return {
        "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{exact}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
