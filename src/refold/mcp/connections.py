"""Connects to all MCP servers in a separate thread, and makes calls for every session.

The thread starts when it is first needed, and not before the first model request is sent:
importing the SDK takes long, holds the interpreter lock, and would delay that request. Until a
server is connected, the tools that it offered the last time are used (`manifests`).
`connection` handles one server, and `as_tools` makes refold tools.

All tools of servers have the effect `run`. A server can describe a tool as read-only, but this
claim comes from the program whose calls are judged.
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
_MAX_QUESTIONS = 20  # questions of a server to the user, during one call
_MAX_REFUSALS = 3  # in one call; then the user is not asked again
_COMPLETION_SECONDS = 1.0  # the time that a key press waits for values of a server
_MAX_REPORTS = 100  # sentences about servers, in one start


class ServerStatus(Struct, frozen=True):
    """The status of a server, as shown to the user. `why` says what is wrong, or is ""."""

    config: ServerConfig
    state: str
    manifest: Manifest
    why: str = ""

    @property
    def blocked_sentence(self) -> str:
        """A sentence about the server's blocked tools; "" if no tool is blocked."""
        if self.manifest.damaged:
            return self.manifest.damaged
        if not self.manifest.blocked_tools:
            return ""
        return (
            f"the MCP server {self.config.name} has changed the tools "
            f"{', '.join(tool.name for tool in self.manifest.blocked_tools)}: they are blocked until "
            f"you have seen the difference (`/mcp {self.config.name}` in a session, or "
            f"`refold mcp test {self.config.name}`)"
        )

    @property
    def lost_sentence(self) -> str:
        """A sentence about the failed connection to the server; "" unless it has failed."""
        if self.state != "failed" or not self.why:
            return ""
        return f"the MCP server {self.config.name} cannot be used: {self.why}"


def explain_missing(
    name: str, statuses: Sequence[ServerStatus], refusals: Sequence[str]
) -> str:
    """Explain why there is no tool `name`; "" if the name is not one of a known server's tools.

    `refusals` are the sentences of `as_tools` about refused tools.
    """
    from refold.mcp.as_tools import tool_name

    for status in statuses:
        server, manifest = status.config.name, status.manifest
        prefix = tool_name(server, "")
        if not name.startswith(prefix):
            continue
        refusal = next((sentence for sentence in refusals if name in sentence), "")
        if why := refusal or status.lost_sentence:
            return f"There is no tool {name!r}: {why}."
        tools = (*manifest.offer.tools, *manifest.accepted)
        remote_names = (tool.name for tool in tools if tool_name(server, tool.name) == name)
        tool = next(remote_names, name.removeprefix(prefix))
        return manifest.why_not_usable(server, tool) if manifest.known else ""
    return ""


class McpContext(Struct, frozen=True):
    """What the connections need from the workspace and the settings."""

    commands: "Callable[[PreparedServer], Commands]"
    prepare: "Callable[[ServerConfig, Callable[[], None]], Awaitable[PreparedServer]]"
    log: WriteLog
    grants: GrantStore = NoGrants()
    environ: Mapping[str, str] = {}
    addresses: resolver.Resolve = resolver.resolve  # resolves a host
    # whether the sandbox refuses to let programs make namespaces
    no_namespaces: bool = False


class Connections:
    """The connections to all servers. `close` stops the servers, and blocks the thread."""

    def __init__(
        self, servers: Sequence[ServerConfig], manifests: Manifests, context: McpContext
    ) -> None:
        self.servers = tuple(servers)
        self._manifests, self._mcp_context = manifests, context
        self._stored = {one.name: manifests.read(one) for one in servers}
        self._by_name: dict[str, Connection] = {}
        self._stack, self._lock = ExitStack(), Lock()
        self._is_ready = Event()  # set when `_by_name` has the connections
        self._portal: BlockingPortal | None = None
        self._limit: anyio.CapacityLimiter | None = None
        self._closed = False
        self.reports = list[str]()  # sentences for the user, each once
        self.resource_news = ResourceNews()
        self._logins: dict[str, Future[None]] = {}

    def manifest(self, name: str) -> Manifest:
        """Return what is known of a server, even before it is connected."""
        connection = self._by_name.get(name)
        return connection.manifest if connection else self._stored[name]

    def statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(self._status(one) for one in self.servers)

    @property
    def never_connected(self) -> tuple[str, ...]:
        """The names of the servers that have neither been connected nor failed to connect."""
        manifests = {one.name: self.manifest(one.name) for one in self.servers}
        return tuple(n for n, m in manifests.items() if not (m.known or m.failed))

    def begin(self) -> None:
        """Start to connect, without waiting. Later calls do nothing."""
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
        """Start to connect, and wait until each server is connected or has failed.

        Wait at most `seconds`, and longer while packages of a server are being installed. After
        each question that the user answers, the time starts again.
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
        """Call a tool of a server, and return its result. Raises `ToolFailed`.

        With `complete`, the server may ask for model calls.
        """

        async def call_tool(channel: Channel) -> Reply:
            connection = await self._find(server)
            return await connection.call(tool, arguments, channel)

        return await self._run_in_thread(call_tool, context, complete)

    async def read(self, server: str, uri: str, context: Context) -> Reply:
        """Return the content of a resource of a server. Raises `ToolFailed`."""

        async def read_resource(channel: Channel) -> Reply:
            connection = await self._find(server)
            return await connection.read(uri, context.session_id, channel)

        if server not in self._stored:
            names = ", ".join(self._stored)
            raise ToolFailed(f"There is no MCP server {server!r}. There are: {names}.")
        return await self._run_in_thread(read_resource, context)

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a filled prompt template. Raises `ToolFailed`."""

        async def get_prompt(channel: Channel) -> str:
            connection = await self._find(server)
            return await connection.prompt(name, arguments, channel)

        return await self._run_in_thread(get_prompt)

    def complete(self, server: str, argument: RemoteArgument) -> tuple[str, ...]:
        """Return the values that a server suggests for an argument of a prompt or resource.

        Return () if the server is not connected, or suggests nothing in time. Blocks the thread
        for at most `_COMPLETION_SECONDS`.
        """
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
        """Close the connection to a server, connect again, and return the new status."""

        async def restart_server(channel: Channel) -> None:
            connection = await self._find(name)
            connection.restart()
            await connection.wait_until_settled(channel)

        await self._run_in_thread(restart_server)
        return next(status for status in self.statuses() if status.config.name == name)

    def restart_programs(self) -> None:
        """Restart the connected servers that are programs, without waiting.

        After a restart, they see the current files: a sandbox shows only the files that were
        there when the sandbox was started. Running calls fail.
        """

        async def restart_all() -> None:
            for connection in self._by_name.values():
                connected = connection.state == "connected"
                if connected and connection.config.transport == "stdio":
                    connection.restart()

        if self._portal is not None:
            self._portal.start_task_soon(restart_all)

    async def log_in(self, name: str) -> str:
        """Start a login at a server, and return the address of the page to open.

        The login continues in the servers' thread, which then connects. Raises `ToolFailed`.
        """
        from concurrent.futures import Future

        self.begin()
        if self._portal is None:
            raise ToolFailed(_CONNECTIONS_CLOSED)
        page: Future[str] = Future()

        async def open_login() -> None:
            from refold.mcp.session_login import log_in_to

            await log_in_to(await self._find(name), page)

        if (old_login := self._logins.get(name)) is not None:
            old_login.cancel()
        self._logins[name] = self._portal.start_task_soon(open_login)
        return await anyio.to_thread.run_sync(page.result, abandon_on_cancel=True)

    def log_out(self, name: str) -> bool:
        """Delete the login at a server. Return False if there was none. Raises `BadInput`.

        Reads and writes the disk.
        """
        config = next(server for server in self.servers if server.name == name)
        # The address may contain variables.
        url = resolve(config, self._mcp_context.environ).url
        return self._mcp_context.grants.remove(name, url)

    def log_lines(self, name: str) -> tuple[str, ...]:
        """Return the newest log lines of a server; () if it has not been started."""
        connection = self._by_name.get(name)
        return tuple(connection.lines) if connection else ()

    def accept(self, name: str) -> None:
        """Accept the tools that the server offers now, after the user has seen what changed."""
        config = next(server for server in self.servers if server.name == name)
        accepted = self.manifest(name).after_acceptance()
        if name in self._by_name:
            self._by_name[name].manifest = accepted
        self._stored[name] = accepted
        self._manifests.write(config, accepted)

    def report(self, sentence: str) -> None:
        """Log a sentence, and store it to be shown to the user."""
        self._mcp_context.log("warning", sentence)
        if len(self.reports) < _MAX_REPORTS:
            self.reports.append(sentence)

    def close(self) -> None:
        """End all connections and their servers, and wait until the servers' thread has ended."""
        with self._lock:
            self._closed = True
            if self._portal is not None:
                cancel_remaining = True
                self._portal.start_task_soon(self._portal.stop, cancel_remaining)
        self._stack.close()

    def _status(self, config: ServerConfig) -> ServerStatus:
        """Return the status of a server, also before there is a connection to it."""
        connection, manifest = self._by_name.get(config.name), self.manifest(config.name)
        if connection is None:  # the servers' thread has not created it yet
            return ServerStatus(config, "waiting", manifest, manifest.failed)
        return ServerStatus(config, connection.state, manifest, connection.why)

    async def _connect(self) -> None:
        """Import the SDK, and connect to all servers at once. Runs in the servers' thread."""
        from refold.mcp.connection import Connection, Environment
        from refold.mcp.library_log import library_log

        def log(level: Level, text: str) -> None:
            self._mcp_context.log(level, text)

        context = self._mcp_context
        environment = Environment(
            commands=context.commands,
            prepare=context.prepare,
            log=log,
            store=self._store,
            news=self.resource_news,
            grants=context.grants,
            environ=context.environ,
            report=self.report,
            addresses=context.addresses,
            no_namespaces=context.no_namespaces,
        )
        new = [Connection(one, self._stored[one.name], environment) for one in self.servers]
        self._by_name.update({connection.config.name: connection for connection in new})
        self._is_ready.set()
        with library_log(log):
            async with anyio.create_task_group() as group:
                for connection in new:
                    group.start_soon(connection.run)

    def _store(self, config: ServerConfig, manifest: Manifest) -> None:
        """Store a manifest. A failure is only logged, because the server can be used nevertheless."""
        try:
            self._manifests.write(config, manifest)
        except BadInput as error:
            self._mcp_context.log("warning", str(error))

    async def _wait_until_all_settled(self, channel: Channel) -> None:
        """Wait until each server is connected or has failed. Their questions go to `channel`."""
        async with anyio.create_task_group() as group:
            for server in self.servers:
                connection = await self._find(server.name)
                group.start_soon(connection.wait_until_settled, channel)

    async def _find(self, name: str) -> "Connection":
        """Return the connection to a server, as soon as the connections exist."""
        if not self._is_ready.is_set():  # the SDK is still being imported
            await anyio.to_thread.run_sync(self._is_ready.wait, abandon_on_cancel=True)
        return self._by_name[name]

    async def _run_in_thread(
        self,
        function: Callable[..., Awaitable[Any]],
        context: Context | None = None,
        complete: Complete | None = None,
        questions: "_Questions | None" = None,
    ) -> Any:
        """Run `function` in the servers' thread, and return its result. Raises `ToolFailed`.

        `function` gets a channel. Until `function` ends, this thread handles the progress, the
        questions and the model calls that arrive in the channel.
        """
        self.begin()
        if self._portal is None:
            raise ToolFailed(_CONNECTIONS_CLOSED)
        channel, sampler = Channel(), _Sampler(context, complete)
        questions = questions or _Questions(context, self.report)
        if self._limit is None:
            self._limit = anyio.CapacityLimiter(_MAX_CONCURRENT_CALLS)
        future: Future[Any] = self._portal.start_task_soon(function, channel)
        future.add_done_callback(lambda _: channel.put(None))
        try:
            while True:
                message = await anyio.to_thread.run_sync(
                    channel.get, abandon_on_cancel=True, limiter=self._limit
                )
                match message:
                    case None:  # the function has ended
                        return future.result()
                    case Elicitation():
                        await questions.answer(message)
                    case Sampling():
                        await sampler.answer(message)
                    case str() if context is not None:
                        context.progress(message)
                    case _:  # progress that no call can show
                        pass
        finally:
            future.cancel()
            channel.put(None)  # ends a thread that still waits for a message


class _Questions:
    """Asks the user the questions that servers send during one call.

    The cancel scope `limit` has no deadline while the user is asked.
    """

    def __init__(
        self,
        context: Context | None,
        report: Callable[[str], None],
        limit: anyio.CancelScope | None = None,
    ) -> None:
        self._context, self._report = context, report
        self._limit = limit or anyio.CancelScope()
        self._seconds = 0.0  # from an answer to the end of `limit`; 0.0 if there is none
        if limit is not None:
            self._seconds = limit.deadline - anyio.current_time()
        self._question_count = self._refusal_count = 0
        self._is_limit_reported = False

    async def answer(self, elicitation: Elicitation) -> None:
        """Send the server the user's answer, or "cancel" if the server asks too often."""
        from refold.mcp.questions import Asked, ask, cancel_result, describe_question

        server, params = elicitation.server, elicitation.params
        asked = Asked(cancel_result())  # also if an error is raised
        asked_often = self._question_count >= _MAX_QUESTIONS
        refused_often = self._refusal_count >= _MAX_REFUSALS
        self._limit.deadline = float("inf")  # the user's time does not count
        try:
            if asked_often or refused_often:
                if not self._is_limit_reported:
                    self._is_limit_reported = True
                    self._report(
                        f"The MCP server {server} asked too often in one call: its other questions "
                        "were cancelled"
                    )
            elif self._context is None:
                problem = "the user is asked only during a call of a tool"
                asked = Asked(cancel_result(), problem)
            else:
                self._question_count += 1
                asked = await ask(elicitation, self._context)
            if asked.result.action != "accept":
                self._refusal_count += 1
            if asked.problem:
                why = asked.problem.rstrip(".")
                self._report(
                    f"{describe_question(server, params)} - this was cancelled: {why}"
                )
        finally:
            if self._seconds:
                self._limit.deadline = anyio.current_time() + self._seconds
            elicitation.answer(asked.result)


class _Sampler:
    """Makes the model calls that servers request during one call.

    It imports `mcp.sampling`, and with it the SDK, only when the first request arrives.
    """

    def __init__(self, context: Context | None, complete: Complete | None) -> None:
        self._context, self._complete = context, complete

    @cached_property
    def _sampler(self) -> "Sampler":
        from refold.mcp.sampling import Sampler

        return Sampler(self._context, self._complete)

    async def answer(self, sampling: Sampling) -> None:
        """Call the model for a server, and answer its request, also if the call fails."""
        answer: Any = None  # a refusal, sent if the model call fails
        try:
            answer = await self._sampler.sample(sampling.server, sampling.params)
        finally:
            sampling.answer(answer)
