"""Builds the ASGI application of the server: pages, REST and WebSockets, behind the guard.

`guard` decides which requests are accepted. The routes are in other modules: for REST in
`rest` and `files`, for the WebSockets in `websocket`, and for webhooks in `webhook_routes`.
`listening` has the socket.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from importlib.resources import files

import anyio
from anyio import to_thread
from fastapi import FastAPI, Request, Response
from msgspec import Struct

from refold._version import __version__
from refold.client.host import Host
from refold.client.types import acting_person
from refold.client.webhooks import Webhooks
from refold.errors import RefoldError
from refold.server.access import COOKIE_SECONDS, PAGE_PERSON, Access
from refold.server.api import Api, json_response, read_body
from refold.server.changes import add_changes
from refold.server.commands import add_commands
from refold.server.files import add_files
from refold.server.folder_settings import add_folder_settings
from refold.server.folders import add_folders
from refold.server.guard import App, Guard, Names, Rejected
from refold.server.listening import ListenOptions, listen, names_of, serve_until_signal
from refold.server.model_settings import add_models
from refold.server.page_files import PAGE_FILES, PUBLIC_FILES, PageFiles
from refold.server.ports import add_ports
from refold.server.previews import add_previews
from refold.server.rest import add_rest
from refold.server.terminals import (
    TERMINAL_PERMISSION,
    Terminals,
    add_terminals,
    check_not_shared,
)
from refold.server.webhook_routes import HOOKS_PREFIX, add_hooks
from refold.server.websocket import add_websocket

_LOGIN_PATHS = ("/login.js", "/api/login")


class Login(Struct, frozen=True, forbid_unknown_fields=True):
    launch: str


class Launched(Struct, frozen=True):
    """The token of a new link to a page.

    `launch` is valid once: open a page as `/#launch=…`.
    """

    launch: str


class Health(Struct, frozen=True):
    version: str
    conversations: int  # number of conversations that this server has open


def application(
    host: Host,
    access: Access,
    names: Names,
    setup: ListenOptions,
    webhooks: Webhooks | None = None,
    terminals: Terminals | None = None,
) -> App:
    """Return the ASGI application of the server; `serve` also listens.

    Without `webhooks` or `terminals`, their routes are missing.
    """
    # Whether no other machine can read requests on their way.
    safe = setup.tls or not setup.beyond_loopback
    app = FastAPI(title="refold", version=__version__, docs_url=None, redoc_url=None)
    api = Api(app)
    add_routes(api, host, access, tls=setup.tls, safe=safe)
    add_websocket(app, host)
    if terminals is not None:
        add_terminals(api, app, terminals)
    _add_pages(app, access, PageFiles(terminal=terminals is not None))
    if webhooks is not None:
        add_hooks(api, webhooks)
    public = (*PAGE_FILES, *PUBLIC_FILES, *_LOGIN_PATHS)
    signed_prefix = HOOKS_PREFIX if webhooks is not None else ""
    return Guard(app, access, names, public, signature=signed_prefix)


def add_routes(api: Api, host: Host, access: Access, *, tls: bool, safe: bool) -> None:
    """Add the routes that every server has.

    `tls` says that browsers use https, and `safe` that no other machine can read requests
    on their way.
    """
    _add_access(api, host, access, tls=tls)
    add_rest(api, host)
    add_commands(api, host)
    add_files(api, host)
    add_previews(api, host)
    add_changes(api, host)
    add_ports(api, host)
    add_folders(api, host)
    add_models(api, host, safe=safe)
    add_folder_settings(api, host)


def _add_access(api: Api, host: Host, access: Access, *, tls: bool) -> None:
    @api.route("GET", "/api/health", Health)
    async def health() -> Response:  # pyright: ignore[reportUnusedFunction] - a route
        """Return the version of the server, and the number of its open conversations."""
        return json_response(Health(__version__, len(host.conversations)))

    @api.route("POST", "/api/login", None, status=204, body=Login)
    async def login(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Exchange a launch token for a cookie. A token is valid once."""
        body = await read_body(request, Login)
        cookie = access.redeem(body.launch)
        if not cookie:
            raise Rejected(
                403,
                "this link was used or is too old: start refold serve again for another",
            )
        response = Response(status_code=204)
        response.set_cookie(
            access.cookie_name, cookie, max_age=COOKIE_SECONDS, httponly=True,
            samesite="strict", secure=tls, path="/",
        )  # fmt: skip
        return response

    @api.route("POST", "/api/launches", Launched, status=201)
    async def launch(person: str = "") -> Response:  # pyright: ignore[reportUnusedFunction]
        """Return a token for a link to a page, for another browser or device.

        A program names the person who uses the link. A page makes links for its own person
        only.
        """
        acting = acting_person()
        if not acting:  # a program
            named = person
        elif acting == PAGE_PERSON:  # a page whose own link named no person
            named = ""
        else:
            named = acting
        return json_response(Launched(access.new_launch(named)), 201)


def _add_pages(app: FastAPI, access: Access, pages: PageFiles) -> None:
    """Add the routes of the pages.

    A browser without a cookie gets the page that exchanges a launch token for a cookie.
    """
    package_files = files("refold.server")

    async def page(request: Request) -> Response:
        if not access.has_cookie(request.cookies.get(access.cookie_name, "")):
            data = (package_files / "login.html").read_bytes()
            return Response(data, 401, media_type="text/html; charset=utf-8")
        return pages.page(request.url.path)

    async def script() -> Response:
        data = (package_files / "login.js").read_bytes()
        return Response(data, media_type="text/javascript; charset=utf-8")

    for path in PAGE_FILES:
        app.add_api_route(path, page, include_in_schema=False)
    app.add_api_route("/login.js", script, include_in_schema=False)
    pages.add_routes(app)


async def serve(
    host: Host,
    access: Access,
    setup: ListenOptions,
    ready: Callable[[str], None],
    webhooks: Webhooks | None = None,
    terminals: Terminals | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    `ready` is called with the server's address once it listens. Without `webhooks` or
    `terminals`, their routes are missing.
    """
    if terminals is not None:
        check_not_shared(setup, TERMINAL_PERMISSION)
    with closing(listen(setup)) as listener:
        async with host.run(drain=setup.drain):
            names = names_of(setup, listener)
            app = application(host, access, names, setup, webhooks, terminals)
            leave = terminals.stop if terminals is not None else None
            async with anyio.create_task_group() as group:
                group.start_soon(_read_list_ahead, host)
                await serve_until_signal(app, listener, setup, ready, leave)


async def _read_list_ahead(host: Host) -> None:
    """Prepare the list of sessions while the user opens the page.

    This indexes the sessions, and imports the modules that make the list.
    """
    with suppress(RefoldError, OSError):  # a page that reads the list gets the error
        await to_thread.run_sync(host.stored.newest, 1)
