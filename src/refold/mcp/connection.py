"""One server: connect, list, call, and connect again when the connection is lost.

Everything here runs in the thread of `connections`. A server that ends again and again is
given up after some tries, until the next call asks for it. What a call says meanwhile goes
into its `Channel`, which the session reads; `server_requests` puts there what the server asks.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from msgspec.structs import replace
from pydantic import FileUrl, ValidationError

from refold._version import __version__
from refold.errors import RefoldError, ToolFailed, first
from refold.mcp import results, server_tasks, transports
from refold.mcp.channel import Channel
from refold.mcp.flood import FloodGate, screen_streams
from refold.mcp.grants import GrantStore, NoGrants
from refold.mcp.http_transport import JudgedTransport
from refold.mcp.manifests import Manifest, RemoteArgument
from refold.mcp.oauth_session import ServerLogin
from refold.mcp.protocol_versions import mode_for, needs_older, offer_version, older_version
from refold.mcp.resource_news import ResourceNews
from refold.mcp.server_lists import complete, listen_for_changes, read_lists
from refold.mcp.server_paths import PreparedServer
from refold.mcp.server_requests import ServerRequests
from refold.mcp.servers import ServerConfig
from refold.mcp.sse_transport import sse
from refold.mcp.subscriptions import Subscriptions
from refold.mcp.transports import ConnectionEnd, HostAttempts
from refold.place.port import Commands
from refold.provider import resolver
from refold.provider.connect import Unconnected
from refold.tools.contract import Reply
from refold.values.log_level import Level
from refold.values.printable_names import shorten
from refold.values.text import escape_marks, escape_outside

Answer = TypeVar("Answer")
State: TypeAlias = Literal["waiting", "connecting", "connected", "failed"]

_MAX_SHORT_CONNECTIONS = 5  # short connections in a row, after which a server is given up
_SHORT_SECONDS = 30.0  # longer connections count as good
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 30.0  # seconds before it is tried again
_BURST_READINGS, _READING_PAUSE_SECONDS = (
    5,
    2.0,
)  # readings of its lists, then seconds between two
_LOG_LINES = 50
_MAX_VISITS = 3  # times that a call asks for pages before it works


class Environment(Struct, frozen=True):
    """What a connection needs besides its configuration."""

    commands: Callable[[PreparedServer], Commands]
    # Fills in variables and installs packages; calls the function before it installs.
    prepare: Callable[[ServerConfig, Callable[[], None]], Awaitable[PreparedServer]]
    log: Callable[[Level, str], None]
    store: Callable[[ServerConfig, Manifest], None]
    news: ResourceNews
    grants: GrantStore = NoGrants()
    environ: Mapping[str, str] = {}
    report: Callable[[str], None] = lambda _: None  # a sentence that the user should read
    addresses: resolver.Resolve = resolver.resolve  # of a host
    no_namespaces: bool = False  # whether the sandbox refuses them to programs


class Connection:
    """A connection. `manifest` is what is known of the server, renewed when it connects."""

    def __init__(
        self, config: ServerConfig, manifest: Manifest, environment: Environment
    ) -> None:
        self.config, self.manifest = config, manifest
        self.state: State = "waiting"
        self.why, self.installing = "", False
        self.lines = deque[str](maxlen=_LOG_LINES)  # what was logged last
        self._hosts = HostAttempts(self.log)
        self.environment, self._server = environment, PreparedServer(config)
        self._client: Client | None = None
        self._failure: BaseException | None = None  # of the last connection
        self._lost_why = ""  # why the last connection ended, if there was one
        self._ending = ConnectionEnd()
        self._settled, self._wanted = anyio.Event(), anyio.Event()
        self._requests = ServerRequests(
            config.name, lambda why: self._ending.stop(why), self._report
        )
        self._subscriptions = Subscriptions(
            config.name, environment.news, lambda text: self.log("info", text)
        )

    async def run(self) -> None:
        """Keep the server connected, until cancelled."""
        failures = 0
        while True:
            began = anyio.current_time()
            self.state, self._ending = "connecting", ConnectionEnd()
            self.why = await self._run_connection()
            lived = anyio.current_time() - began
            failures = (
                1 if lived > _SHORT_SECONDS and self._client is not None else failures + 1
            )
            if self._ending.renewed:
                self.why, failures = "", 0
                continue
            self._note_loss()
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            if failures >= _MAX_SHORT_CONNECTIONS or self._ending.for_user:
                tries = (
                    "" if self._ending.for_user else f"given up after {failures} tries: "
                )
                self.log("error", f"{tries}{self.why}")
                await self._wanted.wait()
                failures = 0
            else:
                self.log("warning", f"{self.why}; trying again in {pause:g} s")
                with anyio.move_on_after(pause):
                    await self._wanted.wait()
            self._wanted = anyio.Event()
            if self._settled.is_set():
                self._settled = anyio.Event()

    async def wait_until_settled(self, channel: Channel) -> None:
        """Wait until the server is connected, or could not be."""
        with self._requests.send_to_session(channel):
            await self._settled.wait()

    async def call(
        self, tool: str, arguments: Mapping[str, object], channel: Channel
    ) -> Reply:
        """Call a tool. Raises `ToolFailed`."""
        with self._requests.send_to_session(channel):
            client = await self._connect()
            with anyio.move_on_after(self.config.connect_seconds):
                await self._ending.listed.wait()  # no call slips in before a change is seen
            if tool not in {entry.name for entry in self.manifest.usable}:
                why = self.manifest.why_not_usable(self.config.name, tool)
                raise ToolFailed(f"{why} It was not called.")
            call = partial(self._call_tool, client, tool, dict(arguments), channel)
            return await self._hosts.add_remarks(self._answer_in_time(call))

    async def read(self, uri: str, session: str, channel: Channel) -> Reply:
        """Return the content of a resource to a session. Raises `ToolFailed`."""
        with self._requests.send_to_session(channel):
            client = await self._connect()

            async def read() -> types.ReadResourceResult:
                async with self._subscriptions.subscribe_while_reading(
                    client, uri, session
                ):
                    return await client.read_resource(uri)

            result = await self._answer_in_time(read)
            return results.contents(self.config.name, result.contents)

    async def prompt(
        self, name: str, arguments: Mapping[str, str], channel: Channel
    ) -> str:
        """Return the text of a prompt template. Raises `ToolFailed`."""
        with self._requests.send_to_session(channel):
            get = partial((await self._connect()).get_prompt, name, dict(arguments))
            result = await self._answer_in_time(get)
            return results.prompt(self.config.name, result.messages)

    async def complete(self, argument: RemoteArgument) -> tuple[str, ...]:
        """Return values for an argument; none if the server is not connected or has none."""
        return await complete(self._client, argument) if self._client else ()

    def restart(self) -> None:
        """End the connection, if there is one, and connect again."""
        self.manifest = replace(self.manifest, failed="")
        if self._client is not None:
            self._renew()
            return
        if self._settled.is_set():
            self._settled = anyio.Event()
        self._wanted.set()

    async def _run_connection(self) -> str:
        """Run one connection until it is lost. Return the reason."""
        why = ""
        try:
            self._server = await self.environment.prepare(self.config, self._install)
        except (RefoldError, OSError, ValueError) as error:  # one server, not the session
            self._ending.stop(str(error))
            return self._ending.why
        finally:
            self.installing = False
        if self._server.installed:
            self.log("info", self._server.installed)
        config = self._server.config
        # A server of the older kind refuses the first message of the newer transport.
        for transport in (
            ("http", "sse") if config.transport == "http" else (config.transport,)
        ):
            reason = await self._run_over(config, transport)
            if self.state != "connected" and (older := self._older_version()):
                self.log("info", f"speaks the protocol {older}")
                self.manifest = replace(self.manifest, protocol=older)
                self._ending = ConnectionEnd()
                reason = await self._run_over(config, transport)
            if self.state == "connected":
                return reason
            if self._ending.for_user:
                return reason
            why = why or reason
            self._ending = ConnectionEnd()
        return why

    async def _run_over(self, config: ServerConfig, transport: str) -> str:
        ending = self._ending
        try:
            seconds = config.connect_seconds
            with self._requests.limit(seconds, connecting=True) as limit:
                async with self._client_over(config, transport) as client:
                    await self._set_log_level(client)
                    await self._list(client)
                    limit.lift()
                    if self._lost_why:
                        self._report(f"ended and was started again: {self._lost_why}")
                    self._client, self.state, self.why = client, "connected", ""
                    self._lost_why = ""
                    self._settled.set()
                    async with anyio.create_task_group() as group:
                        group.start_soon(listen_for_changes, client, ending, self.log)
                        group.start_soon(self._subscriptions.start, client, group)
                        await self._watch(client, ending)
                        group.cancel_scope.cancel()
        except TimeoutError:
            ending.end(f"it did not answer within {config.connect_seconds:g} s")
        except Exception as error:  # of the SDK or a transport: one server, not the session
            failure = self._failure = first(error)
            if isinstance(failure.__cause__, Unconnected) and failure.__cause__.lasting:
                ending.stop(_end_reason(failure))
            else:
                ending.end(_end_reason(failure))
        return ending.why or "the connection was closed"

    async def _watch(self, client: Client, connection_end: ConnectionEnd) -> None:
        """Read the lists again when they have changed, until the connection ends."""
        readings = 0
        while not connection_end.ended:
            await connection_end.news.wait()
            if readings >= _BURST_READINGS:  # it may change them endlessly
                await anyio.sleep(_READING_PAUSE_SECONDS)
            connection_end.news = anyio.Event()
            if (changes := connection_end.changes) and not connection_end.ended:
                readings += 1
                with anyio.fail_after(self.config.connect_seconds):
                    await self._list(client)
                connection_end.note_read(changes)

    async def _set_log_level(self, client: Client) -> None:
        """Set the server's log level. In the newest protocol each request contains it."""
        older = client.protocol_version not in MODERN_PROTOCOL_VERSIONS
        if client.server_capabilities.logging is None or not older:
            return
        try:
            params = types.SetLevelRequestParams(level=self.config.log_level)
            request = types.SetLevelRequest(params=params)  # the method warns on the screen
            await client.session.send_request(request, types.EmptyResult)
        except MCPError as error:
            self.log("info", f"takes no log level: {transports.reason(error)}")

    def _client_over(self, config: ServerConfig, transport: str) -> Client:
        gate = FloodGate(
            lambda what: self.log("warning", what),
            self._ending.mark_changed,
            self._subscriptions.note_update,
        )
        return Client(
            offer_version(
                screen_streams(self._streams(config, transport), gate), self._protocol
            ),
            mode=mode_for(self._protocol),
            list_roots_callback=self._roots if self._server.roots_to_offer() else None,
            sampling_callback=self._requests.sample,
            elicitation_callback=self._requests.elicit,
            logging_callback=self._log_message,
            log_level=self.config.log_level,
            message_handler=self._handle_message,
            client_info=types.Implementation(name="refold", version=__version__),
            extensions=(server_tasks.TasksExtension(),),
        )

    def _streams(
        self, config: ServerConfig, transport: str
    ) -> AbstractAsyncContextManager[Any]:
        outside = self.environment
        if transport == "stdio":
            commands = outside.commands(self._server)
            return transports.stdio(
                self._server,
                commands,
                self._ending,
                lambda line: self.log("info", line),
                self._hosts,
            )
        network = JudgedTransport(outside.environ, outside.addresses)
        login = self._login(config)
        if transport == "sse":
            return sse(config, network, login, self._ending)
        return transports.http(config, network, login)

    @property
    def _protocol(self) -> str:
        return self.config.protocol or self.manifest.protocol

    def _older_version(self) -> str:
        """Return the version to try instead; "" if none would help, or one is set."""
        failure, self._failure = self._failure, None
        return "" if self.config.protocol else older_version(failure, self._protocol)

    async def _call_tool(
        self, client: Client, tool: str, arguments: dict[str, Any], channel: Channel
    ) -> Reply:
        """Call a tool. Raises `ToolFailed` if the call needs an older protocol.

        That protocol is used from then on, but the call is not repeated with it, because
        the tool may have done something before it failed. A call is repeated only if the
        server said that the user must visit a page first.
        """
        as_task = tool in {item.name for item in self.manifest.usable if item.as_task}
        report_progress = channel.put_progress
        visits = 0
        while True:
            answer: types.CallToolResult | MCPError
            try:
                answer = await server_tasks.call_tool(
                    client, tool, arguments, report_progress, as_task=as_task
                )
            except MCPError as error:
                answer = error
                if error.code == types.URL_ELICITATION_REQUIRED and visits < _MAX_VISITS:
                    visits += 1
                    await self._requests.visit_pages(error)
                    continue
            break
        if not self.config.protocol and needs_older(client.protocol_version, answer):
            self.manifest = replace(self.manifest, protocol=LATEST_HANDSHAKE_VERSION)
            self.environment.store(self.config, self.manifest)
            self._renew()
            raise ToolFailed(
                f"The MCP server {self.config.name} could not ask the user anything over the newest "
                f"protocol, so {tool} failed. It is connected again with the protocol "
                f"{LATEST_HANDSHAKE_VERSION}, where it can: call the tool again."
            )
        if isinstance(answer, MCPError):
            raise answer
        confined = self.environment.no_namespaces and bool(self.config.command)
        return results.reply(self.config.name, answer, no_namespaces=confined)

    def _login(self, config: ServerConfig) -> ServerLogin | None:
        """Return the login, or None if the file has a header for it."""
        if any(name.lower() == "authorization" for name, _ in config.headers):
            return None
        outside = self.environment
        stopped = self._ending.stop
        return ServerLogin(
            config, outside.grants, outside.environ, stopped, outside.addresses
        )

    async def _list(self, client: Client) -> None:
        before = [tool.name for tool in self.manifest.usable]
        listing = await read_lists(client, lambda what: self.log("warning", what))
        self.manifest = self.manifest.after_listing(listing)
        names = {tool.name for tool in self.manifest.offer.tools}
        if gone := [name for name in before if name not in names]:
            self._report(f"offers these tools no longer: {shorten(', '.join(gone), 300)}")
        self.environment.store(self.config, self.manifest)
        for tool in self.manifest.blocked_tools:
            self.log("warning", f"the tool {tool.name!r} has changed, and is blocked")

    async def _connect(self) -> Client:
        if self._client is None:
            if self.state == "failed":
                self._settled = anyio.Event()
            self._wanted.set()
            with suppress(TimeoutError), self._requests.limit(self.config.connect_seconds):
                await self._settled.wait()
            if self.installing:
                await self._settled.wait()
        if self._client is None or self.state != "connected":
            raise ToolFailed(
                f"The MCP server {self.config.name} is not connected: "
                f"{self.why or 'it does not answer'}. Nothing was done."
            )
        return self._client

    async def _answer_in_time(self, function: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the server's answer within the time limit. Raises `ToolFailed`."""
        name, ending = self.config.name, self._ending
        try:
            with self._requests.limit(self.config.call_seconds):
                return await function()
        except TimeoutError as error:
            raise ToolFailed(
                f"The MCP server {name} did not answer within {self.config.call_seconds:g} s."
            ) from error
        except MCPError as error:
            if transports.was_closed(error):
                ending.end("the connection was lost")
            why = ending.why if ending.ended else escape_marks(transports.reason(error))
            why = self._server.with_advice(f"The MCP server {name} failed: {why}.")
            raise ToolFailed(why) from error
        except ToolFailed as error:
            raise ToolFailed(self._server.with_advice(str(error))) from error
        except Exception as error:  # of the SDK: it must not end the other servers
            ending.end(transports.reason(error))
            raise ToolFailed(f"The MCP server {name} failed: {ending.why}.") from error

    def _install(self) -> None:
        self.installing = True
        self.log("info", "its packages are installed")

    async def _roots(self, context: object) -> types.ListRootsResult:
        directories = map(Path, self._server.roots_to_offer())
        roots = [types.Root(uri=FileUrl(d.as_uri()), name=d.name) for d in directories]
        return types.ListRootsResult(roots=roots)

    async def _log_message(self, params: types.LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else json.dumps(params.data)
        level: Level = "warning" if params.level in _LOUD_LEVELS else "info"
        self.log(level, f"says: {text[:2_000]}")

    async def _handle_message(self, message: object) -> None:
        if isinstance(message, _LIST_CHANGES):
            self._ending.mark_changed()
        elif isinstance(message, types.ResourceUpdatedNotification):
            self._subscriptions.note_update(message.params.uri)
        elif isinstance(message, types.ElicitCompleteNotification):
            self._requests.note_page_done(message.params.elicitation_id)
        elif isinstance(message, ValidationError):  # a call may be waiting for this message
            self._ending.end(transports.reason(message))

    def _renew(self) -> None:
        """End the connection, and connect again at once. Calls wait until then."""
        self._client = None
        if self._settled.is_set():
            self._settled = anyio.Event()
        self._ending.renew()

    def _note_loss(self) -> None:
        self._lost_why = self.why if self._client is not None else self._lost_why
        self._client, self.state = None, "failed"
        if self.why != self.manifest.failed:
            self.manifest = replace(self.manifest, failed=self.why)
        self._settled.set()

    def _report(self, text: str) -> None:
        self.environment.report(escape_outside(f"the MCP server {self.config.name} {text}"))

    def log(self, level: Level, text: str) -> None:
        self.lines.append(text)
        self.environment.log(level, f"MCP server {self.config.name}: {text}")


_LOUD_LEVELS = frozenset(("warning", "error", "critical", "alert", "emergency"))
_LIST_CHANGES = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)


def _end_reason(error: BaseException) -> str:
    """Return why a connection ended, in words that follow a colon."""
    import httpx2

    if isinstance(error, httpx2.ConnectError):
        return f"it {error}"
    return transports.reason(error)
