"""All servers of one start: connected in a thread of their own, called from any session.

The thread starts when it is first needed, which is after the first request has gone out: the
SDK takes longer to import than everything else. What servers offered the last time is known
before (`manifests`). `connection` is one server, and `as_tools` makes tools of what they offer.

Connecting at the start would be paid by the first request, because the import holds the
interpreter lock. All tools of servers have the effect `run`: their hints are claims of the
program that is being judged.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.mcp.channel import Channel, Elicitation, Sampling
from refold.mcp.grants import GrantStore, NoGrants
from refold.mcp.manifests import Manifest, Manifests, RemoteArgument
from refold.mcp.resource_news import ResourceNews
from refold.mcp.servers import ServerConfig, resolve
from refold.place.port import Commands
from refold.provider import resolver
from refold.tools.contract import Complete, Context, Reply
from refold.values.log_level import Level, WriteLog

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

    from refold.mcp.connection import Connection
    from refold.mcp.sampling import Sampler
    from refold.mcp.server_paths import PreparedServer

_CONNECTIONS_CLOSED = "The MCP servers have been closed. Nothing was done."
_MAX_CONCURRENT_CALLS = 64  # calls that wait for an answer
_MAX_QUESTIONS = 20  # questions of a server in one call that are put to the user
_MAX_REFUSALS = 3  # in one call, after which the user is not asked again
_COMPLETION_SECONDS = 1.0  # that a key waits for the values of a server
_MAX_REPORTS = 100  # sentences about servers, in one start


class ServerStatus(Struct, frozen=True):
    """A server as shown to a person. `why` is what is wrong, or ""."""

    config: ServerConfig
    state: str
    manifest: Manifest
    why: str = ""

    @property
    def blocked_sentence(self) -> str:
        """A sentence about its blocked tools, or ""."""
        if self.manifest.damaged or not self.manifest.blocked_tools:
            return self.manifest.damaged
        return (
            f"the MCP server {self.config.name} has changed the tools "
            f"{', '.join(tool.name for tool in self.manifest.blocked_tools)}: they are blocked until "
            f"you have seen the difference (`/mcp {self.config.name}` in a session, or "
            f"`refold mcp test {self.config.name}`)"
        )

    @property
    def lost_sentence(self) -> str:
        """A sentence about a server that could not be connected, or ""."""
        if self.state != "failed" or not self.why:
            return ""
        return f"the MCP server {self.config.name} cannot be used: {self.why}"


def explain_missing(
    name: str, statuses: Sequence[ServerStatus], refused_names: Sequence[str]
) -> str:
    """Explain why a tool is missing, or return "". `refused_names` is from `as_tools`."""
    from refold.mcp.as_tools import tool_name

    for status in statuses:
        server, manifest = status.config.name, status.manifest
        prefix = tool_name(server, "")
        if not name.startswith(prefix):
            continue
        if (
            why := next((line for line in refused_names if name in line), "")
            or status.lost_sentence
        ):
            return f"There is no tool {name!r}: {why}."
        tools = (*manifest.offer.tools, *manifest.accepted)
        spelled = (tool.name for tool in tools if tool_name(server, tool.name) == name)
        tool = next(spelled, name.removeprefix(prefix))
        return manifest.why_not_usable(server, tool) if manifest.known else ""
    return ""


class McpContext(Struct, frozen=True):
    """What the connections need of the workspace and the settings."""

    commands: "Callable[[PreparedServer], Commands]"
    prepare: "Callable[[ServerConfig, Callable[[], None]], Awaitable[PreparedServer]]"
    log: WriteLog
    grants: GrantStore = NoGrants()
    environ: Mapping[str, str] = {}
    addresses: resolver.Resolve = resolver.resolve  # of a host
    no_namespaces: bool = False  # whether the sandbox refuses them to programs


class Connections:
    """The connections. `close` them in a thread: it ends the servers."""

    def __init__(
        self, servers: Sequence[ServerConfig], manifests: Manifests, context: McpContext
    ) -> None:
        self.servers, self._manifests, self._outside = tuple(servers), manifests, context
        self._known = {one.name: manifests.read(one) for one in servers}
        self._by_name: dict[str, Connection] = {}
        self._stack, self._lock, self._made = ExitStack(), Lock(), Event()
        self._portal: BlockingPortal | None = None
        self._limit: anyio.CapacityLimiter | None = None
        self._closed = False
        self.reports = list[str]()  # sentences for the user, each once
        self.resource_news = ResourceNews()
        self._logins: dict[str, Future[None]] = {}

    def manifest(self, name: str) -> Manifest:
        """Return what is known of a server by now."""
        connection = self._by_name.get(name)
        return connection.manifest if connection else self._known[name]

    def statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(self._status(one) for one in self.servers)

    @property
    def never_connected(self) -> tuple[str, ...]:
        """The servers that were never connected, and have not failed to connect."""
        known = ((one.name, self.manifest(one.name)) for one in self.servers)
        return tuple(name for name, m in known if not m.known and not m.failed)

    def begin(self) -> None:
        """Start connecting, without waiting. Later calls do nothing."""
        with self._lock:
            if self._portal is not None or self._closed or not self.servers:
                return
            from anyio.from_thread import start_blocking_portal

            name = "MCP servers"
            self._portal = self._stack.enter_context(start_blocking_portal(name=name))
            self._portal.start_task_soon(self._connect)

    async def wait_until_settled(
        self, seconds: float, context: Context | None = None
    ) -> None:
        """Connect, and wait until each server is connected or has failed.

        Wait `seconds` at most, and longer while packages of a server are being installed.
        The time starts again after the user has answered a question.
        """
        self.begin()
        while True:
            with anyio.move_on_after(seconds) as limit:
                questions = _Questions(context, self.report, limit)
                await self._run_in_thread(
                    self._wait_until_all_settled, context, questions=questions
                )
                return
            if not any(item.installing for item in self._by_name.values()):
                return

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, object],
        context: Context,
        complete: Complete | None = None,
    ) -> Reply:
        """Call a tool of a server. With `complete`, the server may ask for model calls.

        Raises `ToolFailed`.
        """

        async def call_tool(channel: Channel) -> Reply:
            return await (await self._find(server)).call(tool, arguments, channel)

        return await self._run_in_thread(call_tool, context, complete)

    async def read(self, server: str, uri: str, context: Context) -> Reply:
        """Read a resource. Raises `ToolFailed`."""

        async def read_resource(channel: Channel) -> Reply:
            connection = await self._find(server)
            return await connection.read(uri, context.session_id, channel)

        if server not in self._known:
            names = ", ".join(self._known)
            raise ToolFailed(f"There is no MCP server {server!r}. There are: {names}.")
        return await self._run_in_thread(read_resource, context)

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt template. Raises `ToolFailed`."""

        async def get_prompt(channel: Channel) -> str:
            return await (await self._find(server)).prompt(name, arguments, channel)

        return await self._run_in_thread(get_prompt)

    def complete(self, server: str, argument: RemoteArgument) -> tuple[str, ...]:
        """Ask a server for values of an argument. Waits a little, in a thread; starts nothing."""
        connection = self._by_name.get(server)
        if self._portal is None or connection is None or self._closed:
            return ()
        values: Future[tuple[str, ...]] = self._portal.start_task_soon(
            connection.complete, argument
        )
        try:
            return values.result(_COMPLETION_SECONDS)
        except TimeoutError:
            values.cancel()
            return ()

    async def restart(self, name: str) -> ServerStatus:
        """Connect to a server again. Return its new status."""

        async def restart_server(channel: Channel) -> None:
            connection = await self._find(name)
            connection.restart()
            await connection.wait_until_settled(channel)

        await self._run_in_thread(restart_server)
        return next(one for one in self.statuses() if one.config.name == name)

    def restart_programs(self) -> None:
        """Start the connected servers that are programs again, without waiting.

        Their sandbox shows what it shows at their start. A call that runs fails.
        """

        async def restart_all() -> None:
            for connection in self._by_name.values():
                connected = connection.state == "connected"
                if connected and connection.config.transport == "stdio":
                    connection.restart()

        if self._portal is not None:
            self._portal.start_task_soon(restart_all)

    async def log_in(self, name: str) -> str:
        """Start a login in the browser. Return the address of its page.

        The login continues in the thread, which then connects the server. Raises
        `ToolFailed`.
        """
        from concurrent.futures import Future

        self.begin()
        if self._portal is None:
            raise ToolFailed(_CONNECTIONS_CLOSED)
        page: Future[str] = Future()

        async def open_login() -> None:
            from refold.mcp.session_login import log_in_to

            await log_in_to(await self._find(name), page)

        if (before := self._logins.get(name)) is not None:
            before.cancel()
        self._logins[name] = self._portal.start_task_soon(open_login)
        return await anyio.to_thread.run_sync(page.result, abandon_on_cancel=True)

    def log_out(self, name: str) -> bool:
        """Log out. Return whether there was a login. Reads the disk. Raises `BadInput`."""
        config = next(one for one in self.servers if one.name == name)
        config = resolve(config, self._outside.environ)
        return self._outside.grants.remove(name, config.url)

    def log_lines(self, name: str) -> tuple[str, ...]:
        """Return the newest log lines of a server."""
        connection = self._by_name.get(name)
        return tuple(connection.lines) if connection else ()

    def accept(self, name: str) -> None:
        """Accept the server's tools as they are now: a person saw the differences."""
        config = next(one for one in self.servers if one.name == name)
        taken = self.manifest(name).after_acceptance()
        if name in self._by_name:
            self._by_name[name].manifest = taken
        self._known[name] = taken
        self._manifests.write(config, taken)

    def report(self, sentence: str) -> None:
        """Keep the sentence for the user, and log it."""
        self._outside.log("warning", sentence)
        if len(self.reports) < _MAX_REPORTS:
            self.reports.append(sentence)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._portal is not None:
                self._portal.start_task_soon(self._portal.stop, True)
        self._stack.close()

    def _status(self, config: ServerConfig) -> ServerStatus:
        connection, manifest = self._by_name.get(config.name), self.manifest(config.name)
        if connection is None:
            return ServerStatus(config, "waiting", manifest, manifest.failed)
        return ServerStatus(config, connection.state, manifest, connection.why)

    async def _connect(self) -> None:
        """Import the SDK, and connect to all servers at once. Runs in the thread."""
        from refold.mcp.connection import Connection, Environment
        from refold.mcp.library_log import library_log

        def log(level: Level, text: str) -> None:
            self._outside.log(level, text)

        outside = self._outside
        environment = Environment(
            outside.commands,
            outside.prepare,
            log,
            self._store,
            self.resource_news,
            outside.grants,
            outside.environ,
            self.report,
            outside.addresses,
            outside.no_namespaces,
        )
        new = [Connection(one, self._known[one.name], environment) for one in self.servers]
        self._by_name.update({connection.config.name: connection for connection in new})
        self._made.set()
        with library_log(log):
            async with anyio.create_task_group() as group:
                for connection in new:
                    group.start_soon(connection.run)

    def _store(self, config: ServerConfig, manifest: Manifest) -> None:
        try:
            self._manifests.write(config, manifest)
        except BadInput as error:
            self._outside.log("warning", str(error))

    async def _wait_until_all_settled(self, channel: Channel) -> None:
        async with anyio.create_task_group() as group:
            for one in self.servers:
                connection = await self._find(one.name)
                group.start_soon(connection.wait_until_settled, channel)

    async def _find(self, name: str) -> "Connection":
        if not self._made.is_set():  # the SDK is still being imported
            await anyio.to_thread.run_sync(self._made.wait, abandon_on_cancel=True)
        return self._by_name[name]

    async def _run_in_thread(
        self,
        function: Callable[..., Awaitable[Any]],
        context: Context | None = None,
        complete: Complete | None = None,
        questions: "_Questions | None" = None,
    ) -> Any:
        """Run work in the thread, and handle its news here. Raises `ToolFailed`."""
        self.begin()
        if self._portal is None:
            raise ToolFailed(_CONNECTIONS_CLOSED)
        channel, sampler = Channel(), _Sampler(context, complete)
        questions = questions or _Questions(context, self.report)
        limit = self._limit = self._limit or anyio.CapacityLimiter(_MAX_CONCURRENT_CALLS)
        future: Future[Any] = self._portal.start_task_soon(function, channel)
        future.add_done_callback(lambda _: channel.put(None))
        try:
            while True:
                news = await anyio.to_thread.run_sync(
                    channel.get, abandon_on_cancel=True, limiter=limit
                )
                match news:
                    case None:
                        return future.result()
                    case Elicitation():
                        await questions.answer(news)
                    case Sampling():
                        await sampler.answer(news)
                    case str() if context is not None:
                        context.progress(news)
                    case _:
                        pass
        finally:
            future.cancel()
            channel.put(None)


class _Questions:
    """Puts the questions of a server during one call to the user. `limit` is stopped
    meanwhile.
    """

    def __init__(
        self,
        context: Context | None,
        report: Callable[[str], None],
        limit: anyio.CancelScope | None = None,
    ) -> None:
        self._context, self._report = context, report
        self._limit, self._seconds = limit or anyio.CancelScope(), 0.0
        if limit is not None:
            self._seconds = limit.deadline - anyio.current_time()
        self._asked = self._refused = 0
        self._silenced = False  # further questions are cancelled

    async def answer(self, elicitation: Elicitation) -> None:
        from refold.mcp.questions import Asked, ask, cancel_result, describe_question

        server, params = elicitation.server, elicitation.params
        asked = Asked(cancel_result(), "the user is asked only during a call of a tool")
        self._limit.deadline = float("inf")
        try:
            if self._asked >= _MAX_QUESTIONS or self._refused >= _MAX_REFUSALS:
                asked = Asked(cancel_result())
                if not self._silenced:
                    self._silenced = True
                    self._report(
                        f"The MCP server {server} asked too often in one call: its other questions "
                        "were cancelled"
                    )
            elif self._context is not None:
                self._asked += 1
                asked = await ask(elicitation, self._context)
            self._refused += asked.result.action != "accept"
            if asked.unasked:
                why = asked.unasked.rstrip(".")
                self._report(
                    f"{describe_question(server, params)} - this was cancelled: {why}"
                )
        finally:
            if self._seconds:
                self._limit.deadline = anyio.current_time() + self._seconds
            elicitation.answer(asked.result)


class _Sampler:
    """Makes the model calls of one call's server. The SDK is imported by then."""

    def __init__(self, context: Context | None, complete: Complete | None) -> None:
        self._of = context, complete

    @cached_property
    def _sampler(self) -> "Sampler":
        from refold.mcp.sampling import Sampler

        return Sampler(*self._of)

    async def answer(self, sampling: Sampling) -> None:
        answer: Any = None
        try:
            answer = await self._sampler.sample(sampling.server, sampling.params)
        finally:
            sampling.answer(answer)
