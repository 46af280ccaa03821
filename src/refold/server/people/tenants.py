"""A web node with people: each request reaches only conversations of its person's tenant.

Each tenant has a `Host` and routes of its own. Both are made at the first request of a
person of the tenant, and closed after some time without requests. So no route chooses
between tenants. Auditors can read, but send no orders.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, suppress

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from fastapi import FastAPI, Response

from refold._version import __version__
from refold.client.host import Host
from refold.client.people.oidc import OidcClient
from refold.client.protocol import ReportSnapshot, ReportStatus, parse_order
from refold.client.shared_session import problem
from refold.client.types import act_as_owner
from refold.cluster.people import Identity, People
from refold.errors import BadInput, JournalError, RefoldError
from refold.server.api import Api, json_response
from refold.server.files import add_files
from refold.server.guard import App, Guard, Message, Names, Receive, Rejected, Scope, Send
from refold.server.listening import ListenOptions, listen, names_of, serve_until_signal
from refold.server.page_files import PAGE_FILES, PUBLIC_FILES
from refold.server.people.access import PeopleAccess, identity_of
from refold.server.people.login import PUBLIC_PATHS, add_login
from refold.server.people.rest import PEOPLE_PATHS, add_people
from refold.server.previews import add_previews
from refold.server.rest import add_rest
from refold.server.websocket import add_websocket

OpenHost = Callable[[str], AbstractAsyncContextManager[Host]]
IDLE_SECONDS = 600.0  # without a request, after which a tenant's host is closed
CHECK_SECONDS = 5.0  # between two checks whether the person of a WebSocket may still use it
_SAFE_METHODS = ("GET", "HEAD")
_READS_ONLY = "an auditor reads conversations, and orders nothing"
_LOGIN_ENDED = "your login has ended: log in again"


class Healthy(msgspec.Struct, frozen=True):
    version: str


class TenantHosts:
    """Answers requests with the routes of their tenant.

    The hosts run in the task group `group`, which must be set before the first request.
    """

    def __init__(self, open_host: OpenHost, idle_seconds: float = IDLE_SECONDS) -> None:
        self._open_host, self._idle_seconds = open_host, idle_seconds
        self._apps = dict[str, _TenantApp]()
        self._lock = anyio.Lock()
        self.group: TaskGroup | None = None

    async def serve(self, tenant: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the routes of the tenant, which are made if necessary."""
        async with self._lock:
            if (tenant_app := self._apps.get(tenant)) is None:
                assert self.group is not None, "requests arrive while the node runs"
                tenant_app = self._apps[tenant] = await self.group.start(self._run, tenant)
            tenant_app.requests += 1
        try:
            await tenant_app.app(scope, receive, send)
        finally:
            tenant_app.requests -= 1
            tenant_app.used = anyio.current_time()

    async def _run(self, tenant: str, *, task_status: TaskStatus["_TenantApp"]) -> None:
        """Keep the host of a tenant open until no request has used it for some time."""
        act_as_owner()  # a request of one person has started this task
        async with self._open_host(tenant) as host, host.run():
            tenant_app = _TenantApp(_routes_of(host))
            task_status.started(tenant_app)
            while True:
                await anyio.sleep(self._idle_seconds / 4)
                async with self._lock:
                    unused_seconds = anyio.current_time() - tenant_app.used
                    if unused_seconds > self._idle_seconds and not tenant_app.requests:
                        del self._apps[tenant]
                        return


class _TenantApp:
    """The routes of a tenant, their open requests, and the time of their last use."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.requests = 0
        self.used = anyio.current_time()


class PeopleServer:
    """The ASGI application behind the guard: checks rights, and calls the routes of the
    tenant.
    """

    def __init__(
        self, access: PeopleAccess, client: OidcClient, tenants: TenantHosts
    ) -> None:
        self._access, self._tenants = access, tenants
        app = FastAPI(title="refold", version=__version__, docs_url=None, redoc_url=None)
        api = Api(app)
        add_login(app, access, client)
        add_people(api, access.people)
        self._own: App = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if not path.startswith("/api/") or path.startswith(PEOPLE_PATHS):
            await self._own(scope, receive, send)
            return
        identity = identity_of(scope)
        if scope["type"] == "websocket":
            await self._serve_socket(identity, scope, receive, send)
            return
        if scope["method"] not in _SAFE_METHODS:
            await self._check_rights(identity, scope)
        await self._tenants.serve(identity.tenant, scope, receive, send)

    async def _check_rights(self, identity: Identity, scope: Scope) -> None:
        """Raise `Rejected` unless the person may send this request, which would change
        something.
        """
        if not identity.may_act:
            raise Rejected(403, _READS_ONLY)
        id_ = _conversation_to_delete(scope)
        if id_ and identity.role != "admin":
            own_sessions = await self._access.people.sessions_begun_by(
                identity.tenant, identity.subject
            )
            if id_ not in own_sessions:
                raise Rejected(
                    403,
                    "only an administrator may delete a conversation that another began",
                )

    async def _serve_socket(
        self, identity: Identity, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a WebSocket until its person leaves, is logged out or gets another role."""
        if not identity.may_act:
            receive = _without_orders(receive, send)
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                """Close the WebSocket once its person has lost the login or the role."""
                while await self._is_same(identity, scope):  # noqa: ASYNC110 - the database sends no news
                    await anyio.sleep(CHECK_SECONDS)
                with suppress(RuntimeError):  # it was closed in the meantime
                    await send(
                        {"type": "websocket.close", "code": 1008, "reason": _LOGIN_ENDED}
                    )
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await self._tenants.serve(identity.tenant, scope, receive, send)
            group.cancel_scope.cancel()

    async def _is_same(self, identity: Identity, scope: Scope) -> bool:
        """Whether the person of an open WebSocket may still use the server, in an unchanged
        role.
        """
        try:
            return await self._access.is_same(identity, scope)
        except JournalError:  # the database is unavailable at the moment
            return True


def _routes_of(host: Host) -> App:
    """Return the routes for the people of one tenant. No route changes the node itself."""
    app = FastAPI(title="refold", version=__version__, docs_url=None, redoc_url=None)
    api = Api(app)

    @api.route("GET", "/api/health", Healthy)
    async def health() -> Response:  # pyright: ignore[reportUnusedFunction] - a route
        """Return the version of the node."""
        return json_response(Healthy(__version__))

    add_rest(api, host)
    add_files(api, host)
    add_previews(api, host)
    add_websocket(app, host)
    return app


def _conversation_to_delete(scope: Scope) -> str:
    """Return the id of the conversation that a request deletes; "" for other requests."""
    path: str = scope["path"]
    prefix = "/api/conversations/"
    if scope["method"] != "DELETE" or not path.startswith(prefix):
        return ""
    return path.removeprefix(prefix)


def _without_orders(receive: Receive, send: Send) -> Receive:
    """Return a `receive` for a person who may only read.

    Messages that only read are passed on. An order is refused with an error by `send`.
    """

    async def receive_reads() -> Message:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            text: str = message.get("text") or ""
            try:
                order = parse_order(text.encode(errors="replace"))
            except RefoldError:  # the message is not an order
                key = ""
            else:
                if isinstance(order, ReportStatus | ReportSnapshot):
                    return message
                key = order.client_key
            refusal = msgspec.json.encode(problem(BadInput(_READS_ONLY), key))
            await send({"type": "websocket.send", "text": refusal.decode()})

    return receive_reads


def people_application(
    people: People, client: OidcClient, tenants: TenantHosts, names: Names
) -> App:
    """Return the ASGI application of a web node whose users log in. This opens no socket."""
    access = PeopleAccess(people, client.settings.public_url)
    public = (*PAGE_FILES, *PUBLIC_FILES, *PUBLIC_PATHS)
    return Guard(PeopleServer(access, client, tenants), access, names, public)


async def serve_people(
    people: People,
    client: OidcClient,
    open_host: OpenHost,
    setup: ListenOptions,
    ready: Callable[[str], None],
) -> None:
    """Serve a web node with people until SIGINT or SIGTERM.

    `open_host` opens the sessions of a tenant, given its name. `ready` is called with the
    public address once the node listens.
    """
    public_url = client.settings.public_url.rstrip("/")
    with closing(listen(setup)) as listener:
        own_names = names_of(setup, listener)
        _, _, host = public_url.partition("://")
        names = Names(own_names.hosts | {host.lower()}, frozenset({public_url}))
        tenants = TenantHosts(open_host)
        async with anyio.create_task_group() as tenants.group:
            app = people_application(people, client, tenants, names)
            await serve_until_signal(app, listener, setup, lambda _: ready(public_url))
            tenants.group.cancel_scope.cancel()
