"""Serves conversations over REST: begins, lists, searches, renames, deletes and reads them.

Lists and reports are the documents that the command line prints with --json; `views` makes
them. Files are in `files`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from anyio import to_thread
from fastapi import Path, Query, Request, Response
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from refold.client.choices import OFFER_KINDS, offers
from refold.client.event_documents import parse_cursor
from refold.client.host import Conversation, Host
from refold.client.new_conversation import NewConversation
from refold.client.session import Session
from refold.errors import BadInput, JournalError
from refold.server.api import Api, MediaTypes, NotThere, json_response, read_body
from refold.values.control import BoardTask
from refold.values.session_tags import ARCHIVED_TAG, PINNED_TAG
from refold.views.cost import SpendingDocument
from refold.views.export.formats import FORMAT_SUFFIXES
from refold.views.model_step import RequestDocument
from refold.views.rewind_points import RewindPoint
from refold.views.session_list import SearchHit, SessionDocument
from refold.views.session_tree import TreeDocument
from refold.views.stream_json.encode import Document
from refold.views.stream_json.snapshot import SnapshotMessage
from refold.views.timeline import TimelineRow

T = TypeVar("T")
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(/child-[0-9]{1,9}){0,20}")
_BLOB_PATTERN = re.compile(r"[0-9a-f]{64}")
CONVERSATION_PATH = "/api/conversations/{id_:session}"
_MEDIA_TYPES = {
    "md": "text/markdown; charset=utf-8", "text": "text/plain; charset=utf-8",
    "html": "text/html; charset=utf-8", "tar": "application/x-tar",
    "script": "application/jsonl; charset=utf-8",
}  # fmt: skip
# Image types that are recognized by their first bytes and may be shown.
_IMAGE_SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif",
             b"RIFF": "image/webp"}  # fmt: skip
_BINARY_TYPE, _LINES_TYPE = "application/octet-stream", "application/jsonl"
Row = dict[str, Any]
Seq = Annotated[int, Path(ge=1, le=2**53)]


class Created(Struct, frozen=True):
    id: str
    # What a person must know, above all about missing protection.
    notices: Sequence[str]


class ConversationChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of a conversation. Fields that are left out stay unchanged."""

    name: str | UnsetType = UNSET  # "" removes the name
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


class ListedAs(Struct, frozen=True):
    name: str
    pinned: bool
    archived: bool


async def open_conversation(host: Host, id_: str) -> Conversation:
    """Return the conversation with this id, which is opened if necessary.

    Raises `NotThere` if there is no such conversation, `BadInput` for a subagent, and
    `Held` if another process has the conversation open.
    """
    if (chat := host.conversation(id_)) is not None:
        return chat
    await check_exists(host, id_)
    _check_no_subagent(id_)
    return await host.open(id_)


def _check_no_subagent(id_: str) -> None:
    """Raise `BadInput` if this is the id of a subagent, such as ID/child-1."""
    root, _, child = id_.partition("/")
    if child:
        raise BadInput(
            f"{id_!r} is a subagent, which is read only: ask for this of {root!r}"
        )


async def check_exists(host: Host, id_: str) -> None:
    """Raise `NotThere` if no conversation has this id."""
    is_id = bool(_ID_PATTERN.fullmatch(id_))
    if not is_id or not await to_thread.run_sync(host.stored.exists, id_):
        raise NotThere(f"there is no conversation {id_!r}")


class OutputSoFar(Struct, frozen=True):
    """The output of a background command: all of it, or its end."""

    name: str
    text: str


def add_rest(api: Api, host: Host) -> None:
    _add_conversations(api, host)
    _add_list(api, host)
    _add_reports(api, host)
    _add_work(api, host)
    _add_requests(api, host)
    _add_bytes(api, host)
    for kind in OFFER_KINDS:
        if kind != "commands":  # `commands` serves that kind
            _add_offers(api, host, kind)


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def _add_conversations(api: Api, host: Host) -> None:
    @api.route("POST", "/api/conversations", Created, status=201, body=NewConversation)
    async def create(request: Request) -> Response:
        """Begin a conversation."""
        chat = await host.create(await read_body(request, NewConversation))
        return json_response(Created(chat.session.id, await chat.notices()), 201)

    @api.route("GET", CONVERSATION_PATH, SessionDocument)
    async def get_conversation(id_: str) -> Response:
        """Return one conversation; `held_by` describes another process that has it open.

        If `open_here` is true, too, this server has joined the conversation in that
        process.
        """
        await check_exists(host, id_)
        card = await to_thread.run_sync(host.stored.card, id_)
        chat = host.conversation(id_.partition("/")[0])
        if chat is not None:
            cut_off = chat.cut_off and card.open
            card = replace(card, held_by=chat.status().held_by, cut_off=cut_off)
        return json_response(replace(card, open_here=chat is not None))

    @api.route("PATCH", CONVERSATION_PATH, ListedAs, body=ConversationChanges)
    async def change(request: Request, id_: str) -> Response:
        """Change the name of a conversation, or pin or archive it.

        Pinning sets the tag `pinned`, and archiving sets the tag `archived`.
        """
        wanted = await read_body(request, ConversationChanges)
        session = await _change_tags(host, id_, wanted)
        if wanted.name is not UNSET:
            await session.rename(wanted.name)
        about = session.view.session
        return json_response(
            ListedAs(about.name, PINNED_TAG in about.tags, ARCHIVED_TAG in about.tags)
        )

    @api.route("DELETE", CONVERSATION_PATH, None, status=204)
    async def delete(id_: str) -> Response:
        """Delete a conversation for good, with its subagents and checkpoints."""
        await check_exists(host, id_)
        _check_no_subagent(id_)
        await host.delete(id_)
        return Response(status_code=204)


def _add_list(api: Api, host: Host) -> None:
    @api.route("GET", "/api/conversations", (list[SessionDocument], list[SearchHit]))
    async def list_conversations(
        q: Annotated[str, Query(max_length=500)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cut_off: bool = False,
        after: Annotated[str, Query(max_length=200)] = "",
        archived: bool = False,
    ) -> Response:
        """List conversations, pinned ones first, then the newest.

        With `q`, list only conversations whose messages have these words; with `archived`,
        only archived ones; with `cut_off`, only those whose process exited in the middle of
        a turn. The header Link has the address of the next page, if any.
        """
        stored = host.stored
        if cut_off:
            cards = (await to_thread.run_sync(stored.cut_off))[:limit]
            return json_response([card for card in cards if _is_cut_off(host, card.id)])
        if q:
            return json_response(await to_thread.run_sync(stored.search, q, limit))
        page, cursor = await to_thread.run_sync(
            partial(stored.page, limit, after, archived=archived)
        )
        query = {"limit": limit, "after": cursor}
        if archived:
            query["archived"] = True
        following = f'</api/conversations?{urlencode(query)}>; rel="next"'
        return json_response(page, headers={"link": following} if cursor else None)


async def _change_tags(host: Host, id_: str, update: ConversationChanges) -> Session:
    """Set the tags for "pinned" and "archived" as `update` says, and return the session.

    If the session is idle, the time of its last use does not change, so that lists keep
    their order.
    """
    session = (await open_conversation(host, id_)).session
    tags = {PINNED_TAG: update.pinned, ARCHIVED_TAG: update.archived}
    changes = list[str]()
    for tag, is_on in tags.items():
        has_tag = tag in session.view.session.tags
        if is_on is not UNSET and is_on != has_tag:
            changes.append(f"+{tag}" if is_on else f"-{tag}")
    if changes:
        restore_time = await to_thread.run_sync(host.home.remember_time, id_)
        await session.tag(changes)
        if session.idle:
            await to_thread.run_sync(restore_time)
    return session


def _is_cut_off(host: Host, id_: str) -> bool:
    """Whether no process runs the open turn of a session that `StoredSessions.cut_off` lists.

    That list also has sessions whose turn this server runs.
    """
    chat = host.conversation(id_)
    if chat is None:
        return True  # this server does not run the turn, and no other process does
    return chat.cut_off


def _add_reports(api: Api, host: Host) -> None:
    async def read(id_: str, function: Callable[[str], T]) -> T:
        await check_exists(host, id_)
        return await to_thread.run_sync(function, id_)

    @api.route("GET", f"{CONVERSATION_PATH}/messages", list[SnapshotMessage])
    async def messages(id_: str) -> Response:
        """Return the conversation as the model has it now."""
        return json_response(await read(id_, host.stored.messages))

    @api.route("GET", f"{CONVERSATION_PATH}/events", list[Document])
    async def events(
        id_: str,
        after: Annotated[str, Query(max_length=64)] = "0",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        newest: Annotated[int, Query(ge=0, le=2**31)] = 0,
        before: Annotated[str, Query(max_length=64)] = "",
    ) -> Response:
        """Return the documents of the events after the event with the id `after`.

        With `newest`, return instead the documents of at least this number of events: the
        newest, or the last before the id `before`. A WebSocket sends the same documents.
        """
        position = parse_cursor(before or after)

        def documents(id_: str) -> Iterator[bytes]:
            if newest:
                # None: the newest events at the end
                return host.stored.window(id_, position if before else None, newest)
            return host.stored.events(id_, position, limit)

        data = await read(id_, lambda id_: b",".join(documents(id_)))
        return Response(b"[" + data + b"]", media_type="application/json")

    @api.route("GET", f"{CONVERSATION_PATH}/usage", SpendingDocument)
    async def usage(id_: str) -> Response:
        """Return tokens and cost by turn, model and purpose."""
        return json_response(await read(id_, host.stored.usage))

    @api.route("GET", f"{CONVERSATION_PATH}/tree", TreeDocument)
    async def tree(id_: str) -> Response:
        """Return the session and its subagents."""
        return json_response(await read(id_, host.stored.tree))

    @api.route("GET", f"{CONVERSATION_PATH}/timeline", list[TimelineRow])
    async def timeline(
        id_: str,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 100_000,
        after: Annotated[str, Query(max_length=500)] = "",
    ) -> Response:
        """List every call with its time and cost, in the order in which the calls began.

        `limit` is the maximum number of calls; the header Link has the address of the next
        page, if any.
        """
        page = await read(id_, lambda id_: host.stored.timeline(id_, limit, after))
        query = urlencode({"limit": limit, "after": page.following})
        link = f'</api/conversations/{quote(id_, safe="")}/timeline?{query}>; rel="next"'
        return json_response(page.rows, headers={"link": link} if page.following else None)

    @api.route("GET", f"{CONVERSATION_PATH}/points", list[RewindPoint])
    async def points(id_: str) -> Response:
        """List the points to which the conversation can be rewound."""
        chat = await open_conversation(host, id_)
        return json_response(await chat.session.workspace.points())


def _add_work(api: Api, host: Host) -> None:
    """Add the routes of the task board, and of background commands."""

    @api.route("GET", f"{CONVERSATION_PATH}/tasks", list[BoardTask])
    async def tasks(id_: str) -> Response:
        """Return the task board of the conversation's project."""
        chat = await open_conversation(host, id_)
        board = chat.session.workspace.tasks
        return json_response((await to_thread.run_sync(board.read)).tasks)

    @api.route("GET", f"{CONVERSATION_PATH}/background/{{name}}", OutputSoFar)
    async def output(id_: str, name: str) -> Response:
        """Return the output of a background command: all of it, or its last 256 kB."""
        chat = await open_conversation(host, id_)
        if chat.session.view.background.command(name) is None:
            raise NotThere(f"there is no background command {name!r} in {id_}")
        text = await chat.session.reports.background_output(name)
        return json_response(OutputSoFar(name, text))


def _add_requests(api: Api, host: Host) -> None:
    @api.route("GET", f"{CONVERSATION_PATH}/requests", list[RequestDocument])
    async def requests(id_: str) -> Response:
        """List the model calls that were recorded."""
        await check_exists(host, id_)
        return json_response(await to_thread.run_sync(host.stored.requests, id_))

    @api.route("GET", f"{CONVERSATION_PATH}/requests/{{seq}}", RequestDocument)
    async def request(id_: str, seq: Seq) -> Response:
        """Return a recorded model call, as it was sent, with its response."""
        await check_exists(host, id_)
        document = await to_thread.run_sync(host.stored.request, id_, seq)
        if document is None:
            raise NotThere(f"event {seq} of {id_} is not a recorded model call")
        return json_response(document)


def _add_bytes(api: Api, host: Host) -> None:
    @api.route(
        "GET", f"{CONVERSATION_PATH}/export", MediaTypes(tuple(_MEDIA_TYPES.values()))
    )
    async def export(
        id_: str, form: Annotated[str, Query(max_length=20)] = "md"
    ) -> Response:
        """Return the conversation as a file: md, text, html, tar or script."""
        await check_exists(host, id_)
        form = "md" if form == "markdown" else form  # its name in earlier versions
        if form not in FORMAT_SUFFIXES:
            raise BadInput(f"{form!r} is not a format: {', '.join(FORMAT_SUFFIXES)}")
        data = await to_thread.run_sync(lambda: b"".join(host.stored.export(id_, form)))
        disposition = f'attachment; filename="{id_}{FORMAT_SUFFIXES[form]}"'
        return Response(
            data, media_type=_MEDIA_TYPES[form],
            headers={
                "content-disposition": disposition, "content-security-policy": "sandbox",
            },
        )  # fmt: skip

    @api.route("GET", f"{CONVERSATION_PATH}/lines", MediaTypes((_LINES_TYPE,)))
    async def lines(id_: str, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> Response:
        """Return the lines of the journal after this event, as they were written.

        A client that computes the state of the session itself, as `refold attach` does,
        reads these lines.
        """
        await check_exists(host, id_)
        store = host.home.store(id_)
        data = b"".join(line + b"\n" for line in await store.read(after))
        return Response(data, media_type=_LINES_TYPE)

    @api.route(
        "GET",
        f"{CONVERSATION_PATH}/blobs/{{name}}",
        MediaTypes((_BINARY_TYPE, *_IMAGE_SIGNATURES.values())),
    )
    async def blob(id_: str, name: str) -> Response:
        """Return the image or the whole result that a document names by a sha256."""
        await check_exists(host, id_)
        if not _BLOB_PATTERN.fullmatch(name):
            raise NotThere(f"{name!r} is not the name of a blob")
        try:
            data = await to_thread.run_sync(host.stored.blob, id_, name)
        except JournalError as error:
            raise NotThere(str(error)) from error
        kind = image_type(data) or _BINARY_TYPE
        disposition = "inline" if kind.startswith("image/") else "attachment"
        return Response(
            data, media_type=kind,
            headers={
                "content-disposition": disposition, "content-security-policy": "sandbox",
            },
        )  # fmt: skip


def image_type(data: bytes) -> str:
    """Return the media type of an image that a page may show; "" for other data."""
    for first_bytes, kind in _IMAGE_SIGNATURES.items():
        if data.startswith(first_bytes):
            return kind
    return ""


def _add_offers(api: Api, host: Host, kind: str) -> None:
    """Add the routes that list the choices of a kind, for one conversation and for new ones."""

    @api.route("GET", f"{CONVERSATION_PATH}/{kind}", list[Row])
    async def list_offers_of(id_: str) -> Response:
        """List the choices for this conversation."""
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(offers, chat.launch, kind))

    @api.route("GET", f"/api/{kind}", list[Row])
    async def list_offers() -> Response:
        """List the choices for a new conversation in the directory of the server."""
        return json_response(await host.offers(kind))
