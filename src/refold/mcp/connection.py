"""Keeps one server connected, reads its lists, makes calls, and reconnects after a failure.

All of this runs in the thread that `connections` starts. After repeated failures there are no
further attempts until the next call needs the server. Progress of a call and the server's
questions go through a `Channel` to the session; `server_requests` handles the questions.
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

_MAX_SHORT_CONNECTIONS = 5  # in a row, after which a server is given up
_SHORT_SECONDS = 30.0  # a longer connection counts as successful
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 30.0  # seconds before the next try
_BURST_READINGS = 5  # readings of a server's lists in a row, without a pause
_READING_PAUSE_SECONDS = 2.0  # before each later reading
_LOG_LINES = 50
_MAX_VISITS = 3  # visits of pages that one call may require
_MAX_LOGGED_CHARS = 2_000  # of one message that a server logs


class Environment(Struct, frozen=True):
    """What a connection needs besides the configuration of its server."""

    commands: Callable[[PreparedServer], Commands]
    # Fills in variables and installs packages. Calls the function before an installation.
    prepare: Callable[[ServerConfig, Callable[[], None]], Awaitable[PreparedServer]]
    log: Callable[[Level, str], None]
    store: Callable[[ServerConfig, Manifest], None]
    news: ResourceNews
    grants: GrantStore = NoGrants()
    environ: Mapping[str, str] = {}
    report: Callable[[str], None] = lambda _: None  # gets sentences for the user
    addresses: resolver.Resolve = resolver.resolve  # resolves a host
    # whether the sandbox refuses to let programs make namespaces
    no_namespaces: bool = False


class Connection:
    """A connection to one server, with what is known of the server (`manifest`)."""

    def __init__(
        self, config: ServerConfig, manifest: Manifest, environment: Environment
    ) -> None:
        self.config, self.manifest = config, manifest
        self.state: State = "waiting"
        self.why, self.installing = "", False
        self.lines = deque[str](maxlen=_LOG_LINES)  # the newest lines of the server's log
        self._hosts = HostAttempts(self.log)
        self.environment, self._server = environment, PreparedServer(config)
        self._client: Client | None = None
        self._failure: BaseException | None = None  # the failure of the last connection
        self._loss_reason = ""  # why the last connection ended, or ""
        self._ending = ConnectionEnd()
        self._settled = anyio.Event()  # set when it is connected, or connecting has failed
        self._retry = anyio.Event()  # set to connect a failed server again
        self._requests = ServerRequests(
            config.name, lambda why: self._ending.stop(why), self._report
        )
        self._subscriptions = Subscriptions(
            config.name, environment.news, lambda text: self.log("info", text)
        )

    async def run(self) -> None:
        """Connect, and reconnect when the connection is lost, until this task is cancelled."""
        failures = 0
        while True:
            start = anyio.current_time()
            self.state, self._ending = "connecting", ConnectionEnd()
            self.why = await self._run_connection()
            seconds = anyio.current_time() - start
            was_successful = seconds > _SHORT_SECONDS and self._client is not None
            failures = 1 if was_successful else failures + 1
            if self._ending.renewed:
                self.why, failures = "", 0
                continue
            self._note_loss()
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            if self._ending.for_user:
                self.log("error", self.why)
                await self._retry.wait()
                failures = 0
            elif failures >= _MAX_SHORT_CONNECTIONS:
                self.log("error", f"given up after {failures} tries: {self.why}")
                await self._retry.wait()
                failures = 0
            else:
                self.log("warning", f"{self.why}; trying again in {pause:g} s")
                with anyio.move_on_after(pause):
                    await self._retry.wait()
            self._retry = anyio.Event()
            if self._settled.is_set():
                self._settled = anyio.Event()

    async def wait_until_settled(self, channel: Channel) -> None:
        """Wait until connecting succeeds or fails. `channel` gets the server's questions."""
        with self._requests.send_to_session(channel):
            await self._settled.wait()

    async def call(
        self, tool: str, arguments: Mapping[str, object], channel: Channel
    ) -> Reply:
        """Call a tool, and return its result. Raises `ToolFailed`."""
        with self._requests.send_to_session(channel):
            client = await self._connect()
            with anyio.move_on_after(self.config.connect_seconds):
                # a call must not be made before a change of the tools is known
                await self._ending.listed.wait()
            if tool not in {entry.name for entry in self.manifest.usable}:
                why = self.manifest.why_not_usable(self.config.name, tool)
                raise ToolFailed(f"{why} It was not called.")
            call = partial(self._call_tool, client, tool, dict(arguments), channel)
            return await self._hosts.add_remarks(self._answer_in_time(call))

    async def read(self, uri: str, session: str, channel: Channel) -> Reply:
        """Return a resource, and report its changes to `session` later. Raises `ToolFailed`."""
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
        """Return the text of a filled prompt template. Raises `ToolFailed`."""
        with self._requests.send_to_session(channel):
            client = await self._connect()
            get = partial(client.get_prompt, name, dict(arguments))
            result = await self._answer_in_time(get)
            return results.prompt(self.config.name, result.messages)

    async def complete(self, argument: RemoteArgument) -> tuple[str, ...]:
        """Return the values that the server suggests for an argument of a prompt or resource.

        Return () if the server is not connected, or suggests nothing.
        """
        return await complete(self._client, argument) if self._client else ()

    def restart(self) -> None:
        """Close the connection if there is one, and connect again."""
        self.manifest = replace(self.manifest, failed="")
        if self._client is not None:
            self._renew()
            return
        if self._settled.is_set():
            self._settled = anyio.Event()  # calls wait again
        self._retry.set()

    async def _run_connection(self) -> str:
        """Connect. Return why the connection was lost, or why the first transport failed."""
        try:
            self._server = await self.environment.prepare(self.config, self._note_install)
        # an error of one server must not affect the session
        except (RefoldError, OSError, ValueError) as error:
            self._ending.stop(str(error))
            return self._ending.why
        finally:
            self.installing = False
        if self._server.installed:
            self.log("info", self._server.installed)
        config = self._server.config
        transport_names = (config.transport,)
        if config.transport == "http":
            transport_names = ("http", "sse")  # an older server refuses the newer transport
        first_reason = ""
        for transport in transport_names:
            reason = await self._run_over(config, transport)
            if self.state != "connected" and (older_version := self._older_version()):
                self.log("info", f"speaks the protocol {older_version}")
                self.manifest = replace(self.manifest, protocol=older_version)
                self._ending = ConnectionEnd()
                reason = await self._run_over(config, transport)
            if self.state == "connected" or self._ending.for_user:
                return reason
            first_reason = first_reason or reason
            self._ending = ConnectionEnd()
        return first_reason

    async def _run_over(self, config: ServerConfig, transport: str) -> str:
        """Connect over this transport. Return why the connection ended or could not be made."""
        ending = self._ending
        try:
            with self._requests.limit(config.connect_seconds, connecting=True) as limit:
                async with self._client_over(config, transport) as client:
                    await self._set_log_level(client)
                    await self._read_lists(client)
                    limit.lift()
                    if self._loss_reason:
                        self._report(f"ended and was started again: {self._loss_reason}")
                    self._client, self.state, self.why = client, "connected", ""
                    self._loss_reason = ""
                    self._settled.set()
                    async with anyio.create_task_group() as group:
                        group.start_soon(listen_for_changes, client, ending, self.log)
                        group.start_soon(self._subscriptions.start, client, group)
                        await self._watch(client, ending)
                        group.cancel_scope.cancel()
        except TimeoutError:
            ending.end(f"it did not answer within {config.connect_seconds:g} s")
        # an error of the SDK or a transport concerns one server, not the session
        except Exception as error:
            failure = self._failure = first(error)
            cause = failure.__cause__
            if isinstance(cause, Unconnected) and cause.lasting:  # another try would fail
                ending.stop(_end_reason(failure))
            else:
                ending.end(_end_reason(failure))
        return ending.why or "the connection was closed"

    async def _watch(self, client: Client, connection_end: ConnectionEnd) -> None:
        """Read the server's lists again after each change, until the connection ends."""
        readings = 0
        while not connection_end.ended:
            await connection_end.news.wait()
            if readings >= _BURST_READINGS:  # the server may change its lists endlessly
                await anyio.sleep(_READING_PAUSE_SECONDS)
            connection_end.news = anyio.Event()
            if (changes := connection_end.changes) and not connection_end.ended:
                readings += 1
                with anyio.fail_after(self.config.connect_seconds):
                    await self._read_lists(client)
                connection_end.note_read(changes)

    async def _set_log_level(self, client: Client) -> None:
        """Send the log level to the server, unless the protocol has it in each request."""
        is_newest = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if is_newest or client.server_capabilities.logging is None:
            return
        try:
            params = types.SetLevelRequestParams(level=self.config.log_level)
            # the SDK's own method prints a warning
            request = types.SetLevelRequest(params=params)
            await client.session.send_request(request, types.EmptyResult)
        except MCPError as error:
            self.log("info", f"takes no log level: {transports.reason(error)}")

    def _client_over(self, config: ServerConfig, transport: str) -> Client:
        gate = FloodGate(
            lambda what: self.log("warning", what),  # the notice of a dropped message
            self._ending.mark_changed,
            self._subscriptions.note_update,
        )
        screened = screen_streams(self._streams(config, transport), gate)
        return Client(
            offer_version(screened, self._protocol),
            mode=mode_for(self._protocol),
            list_roots_callback=self._list_roots if self._server.roots_to_offer() else None,
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
        """Return the transport as a context manager, which yields the streams of messages."""
        environment = self.environment
        if transport == "stdio":
            commands = environment.commands(self._server)
            return transports.stdio(
                self._server,
                commands,
                self._ending,
                lambda line: self.log("info", line),
                self._hosts,
            )
        network = JudgedTransport(environment.environ, environment.addresses)
        login = self._login(config)
        if transport == "sse":
            return sse(config, network, login, self._ending)
        return transports.http(config, network, login)

    @property
    def _protocol(self) -> str:
        return self.config.protocol or self.manifest.protocol

    def _older_version(self) -> str:
        """Return the protocol version for another attempt after a failure, or ""."""
        failure, self._failure = self._failure, None
        return "" if self.config.protocol else older_version(failure, self._protocol)

    async def _call_tool(
        self, client: Client, tool: str, arguments: dict[str, Any], channel: Channel
    ) -> Reply:
        """Call a tool. If the server requires a visit to a page, call again after the visit.

        If the call fails because it needs an older protocol, reconnect with that protocol and
        raise `ToolFailed`. The call is not repeated: the tool may already have done something.
        """
        as_task = any(t.as_task for t in self.manifest.usable if t.name == tool)
        visits = 0
        while True:
            answer: types.CallToolResult | MCPError
            try:
                answer = await server_tasks.call_tool(
                    client, tool, arguments, channel.put_progress, as_task=as_task
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
        no_namespaces = self.environment.no_namespaces and bool(self.config.command)
        return results.reply(self.config.name, answer, no_namespaces=no_namespaces)

    def _login(self, config: ServerConfig) -> ServerLogin | None:
        """Return the login for requests; None if the settings have an Authorization header."""
        if any(name.lower() == "authorization" for name, _ in config.headers):
            return None
        environment = self.environment
        return ServerLogin(
            config,
            environment.grants,
            environment.environ,
            self._ending.stop,
            environment.addresses,
        )

    async def _read_lists(self, client: Client) -> None:
        """Read and store what the server offers. Report missing tools, and log blocked ones."""
        old_names = [tool.name for tool in self.manifest.usable]
        listing = await read_lists(client, lambda what: self.log("warning", what))
        self.manifest = self.manifest.after_listing(listing)
        names = {tool.name for tool in self.manifest.offer.tools}
        if gone := [name for name in old_names if name not in names]:
            self._report(f"offers these tools no longer: {shorten(', '.join(gone), 300)}")
        self.environment.store(self.config, self.manifest)
        for tool in self.manifest.blocked_tools:
            self.log("warning", f"the tool {tool.name!r} has changed, and is blocked")

    async def _connect(self) -> Client:
        """Return the connected client, and connect first if necessary. Raises `ToolFailed`."""
        if self._client is None:
            if self.state == "failed":
                self._settled = anyio.Event()
            self._retry.set()
            with suppress(TimeoutError), self._requests.limit(self.config.connect_seconds):
                await self._settled.wait()
            if self.installing:  # which has a time limit of its own
                await self._settled.wait()
        if self._client is None or self.state != "connected":
            raise ToolFailed(
                f"The MCP server {self.config.name} is not connected: "
                f"{self.why or 'it does not answer'}. Nothing was done."
            )
        return self._client

    async def _answer_in_time(self, function: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the result of `function`. Raises `ToolFailed` for an error or a timeout."""
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
            text = self._server.with_advice(f"The MCP server {name} failed: {why}.")
            raise ToolFailed(text) from error
        except ToolFailed as error:
            raise ToolFailed(self._server.with_advice(str(error))) from error
        except Exception as error:  # an error of the SDK must not stop the other servers
            ending.end(transports.reason(error))
            raise ToolFailed(f"The MCP server {name} failed: {ending.why}.") from error

    def _note_install(self) -> None:
        self.installing = True
        self.log("info", "its packages are installed")

    async def _list_roots(self, context: object) -> types.ListRootsResult:
        """Return the directories in which the server should work, which it has requested."""
        directories = map(Path, self._server.roots_to_offer())
        roots = [types.Root(uri=FileUrl(d.as_uri()), name=d.name) for d in directories]
        return types.ListRootsResult(roots=roots)

    async def _log_message(self, params: types.LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else json.dumps(params.data)
        level: Level = "warning" if params.level in _WARNING_LEVELS else "info"
        self.log(level, f"says: {text[:_MAX_LOGGED_CHARS]}")

    async def _handle_message(self, message: object) -> None:
        """Handle a notice of the server, or an error in one of its messages. Ignore all others."""
        if isinstance(message, _LIST_CHANGES):
            self._ending.mark_changed()
        elif isinstance(message, types.ResourceUpdatedNotification):
            self._subscriptions.note_update(message.params.uri)
        elif isinstance(message, types.ElicitCompleteNotification):
            self._requests.note_page_finished(message.params.elicitation_id)
        elif isinstance(message, ValidationError):  # a call may be waiting for this message
            self._ending.end(transports.reason(message))

    def _renew(self) -> None:
        """Close the connection, and reconnect at once. Calls wait for the new connection."""
        self._client = None
        if self._settled.is_set():
            self._settled = anyio.Event()
        self._ending.renew()

    def _note_loss(self) -> None:
        """Record that the server is not connected, and why. Waiting calls then fail."""
        if self._client is not None:
            self._loss_reason = self.why
        self._client, self.state = None, "failed"
        if self.why != self.manifest.failed:
            self.manifest = replace(self.manifest, failed=self.why)
        self._settled.set()

    def _report(self, text: str) -> None:
        self.environment.report(escape_outside(f"the MCP server {self.config.name} {text}"))

    def log(self, level: Level, text: str) -> None:
        self.lines.append(text)
        self.environment.log(level, f"MCP server {self.config.name}: {text}")


_WARNING_LEVELS = frozenset(("warning", "error", "critical", "alert", "emergency"))
_LIST_CHANGES = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)


def _end_reason(error: BaseException) -> str:
    """Return why the connection ended. The text is written to follow a colon."""
    import httpx2

    if isinstance(error, httpx2.ConnectError):
        return f"it {error}"
    return transports.reason(error)
