"""Serves previews of workspace files: images, pages of a PDF, sheets, and HTML for a frame.

Pages get text files through `files`. HTML is served for a frame with an opaque origin,
which loads nothing. Its scripts run only if the user requests it for this view.
"""

from typing import Annotated

from anyio import to_thread
from fastapi import Header, Query, Response

from refold.client.host import Conversation, Host
from refold.errors import ToolFailed
from refold.server.api import Api, MediaTypes, NotThere, json_response
from refold.server.files import read_file
from refold.server.rest import CONVERSATION_PATH, image_type, open_conversation
from refold.values.sheet_table import SheetTable

_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_HTML_TYPE = "text/html; charset=utf-8"
_PNG_TYPE = "image/png"
_IMAGE_POLICY = "sandbox; default-src 'none'"
_FRAME_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "connect-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; "
)
_STILL_POLICY = f"{_FRAME_POLICY}sandbox"
_RUNNING_POLICY = f"{_FRAME_POLICY}script-src 'unsafe-inline'; sandbox allow-scripts"
_IMAGE_TYPES = (_PNG_TYPE, "image/jpeg", "image/gif", "image/webp")


def add_previews(api: Api, host: Host) -> None:
    @api.route(
        "GET", f"{CONVERSATION_PATH}/previews/{{path:path}}",
        MediaTypes((_HTML_TYPE, *_IMAGE_TYPES)),
    )  # fmt: skip
    async def preview(  # pyright: ignore[reportUnusedFunction] - a route
        id_: str,
        path: str,
        page: Annotated[int, Query(ge=1, le=100_000)] = 1,
        run: Annotated[
            bool, Query(description="let scripts of HTML run in a frame")
        ] = False,
        sec_fetch_dest: Annotated[str, Header(max_length=100)] = "",
    ) -> Response:
        """Return an image, a page of a PDF as an image, or HTML for a frame."""
        chat = await open_conversation(host, id_)
        data = await to_thread.run_sync(read_file, chat, path)
        if kind := image_type(data):
            return _image(data, kind)
        if data.startswith(b"%PDF"):
            return await _pdf_page(chat, data, page)
        if path.lower().endswith(_HTML_SUFFIXES):
            # In a tab of its own, a script could send its data to any address by navigating
            # there; in a frame, the policy of our page prevents that. Old browsers send no
            # header.
            framed = sec_fetch_dest in ("", "iframe")
            policy = _RUNNING_POLICY if run and framed else _STILL_POLICY
            headers = {"content-security-policy": policy, "x-frame-options": "SAMEORIGIN"}
            return Response(data, media_type=_HTML_TYPE, headers=headers)
        raise NotThere(f"{path!r} is neither an image nor a PDF nor HTML: download it")

    @api.route("GET", f"{CONVERSATION_PATH}/sheets/{{path:path}}", SheetTable)
    async def read_sheet(  # pyright: ignore[reportUnusedFunction] - a route
        id_: str, path: str, sheet: Annotated[int, Query(ge=1, le=10_000)] = 1
    ) -> Response:
        """Return the first rows of a sheet of an XLSX workbook, and the names of its
        sheets.
        """
        chat = await open_conversation(host, id_)
        data = await to_thread.run_sync(read_file, chat, path)
        try:
            return json_response(await chat.session.workspace.read_sheet(data, sheet))
        except ToolFailed as error:
            raise NotThere(str(error)) from error


async def _pdf_page(chat: Conversation, data: bytes, number: int) -> Response:
    """Return a page of a PDF as an image; the header `x-pages` has the number of pages."""
    try:
        drawn = await chat.session.workspace.draw_page(data, number)
    except ToolFailed as error:
        raise NotThere(str(error)) from error
    response = _image(drawn.png, _PNG_TYPE)
    response.headers["x-pages"] = str(drawn.pages)
    return response


def _image(data: bytes, kind: str) -> Response:
    headers = {"content-disposition": "inline", "content-security-policy": _IMAGE_POLICY}
    return Response(data, media_type=kind, headers=headers)
