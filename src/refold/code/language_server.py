"""One language server: its requests, its open documents, and the problems that it reports.

Everything here runs in the thread of `language_servers`, which starts a server again and ends
it. `server_process` is its program, and `wire` has the messages.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

import anyio
from msgspec import Raw, Struct

from refold._version import __version__
from refold.code import wire
from refold.code.languages import language_id
from refold.code.server_process import ServerLaunch, ServerProcess
from refold.code.wire import Diagnostic, RpcMessage
from refold.errors import ToolFailed
from refold.tools.code import one_line

T = TypeVar("T")
_MAX_DOCUMENTS = 60  # open ones; the least recently used is closed
_MAX_PROBLEMS = 1_000  # stored for one file
_MAX_TOKENS = 100  # of its progress
_MAX_STALLS = 2  # consecutive requests without a response, before it is stopped
_END_SECONDS = 2.0  # seconds
_YOUNG_SECONDS = 3.0  # after its start, in which an empty answer is requested again
_MAX_ERROR_CHARS = 500  # of its error message
_CALM_SECONDS = 0.5  # without news, after which no more is expected


class _Document(Struct):
    text: str
    version: int = 1
    since: int = 0  # the number of the change with this text


class _Documents:
    """The files that a server has open, and the problems that it published."""

    def __init__(self, notify: Callable[[str, object], None]) -> None:
        self._notify, self.change = notify, 0
        self.open = dict[str, _Document]()
        self._problems = dict[str, tuple[int, Sequence[Diagnostic]]]()

    def show(self, path: str, text: str) -> None:
        """Open the document, or send its current text."""
        known = self.open.pop(path, None)
        if known is not None and known.text == text:
            self.open[path] = known
            return
        self.change += 1
        uri = wire.uri_of(path)
        if known is None:
            self.open[path] = _Document(text, since=self.change)
            item = {"uri": uri, "languageId": language_id(path), "version": 1, "text": text}
            self._notify("textDocument/didOpen", {"textDocument": item})
            return
        version = known.version + 1
        self.open[path] = _Document(text, version, self.change)
        self._notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": uri, "version": version},
                "contentChanges": [{"text": text}],
            },
        )

    def close(self, paths: Sequence[str]) -> None:
        """Close these documents, and the oldest above the limit."""
        to_close = [path for path in self.open if path not in paths]
        for path in (*paths, *to_close[: max(0, len(to_close) - _MAX_DOCUMENTS)]):
            del self.open[path]
            self._problems.pop(path, None)
            item = {"textDocument": {"uri": wire.uri_of(path)}}
            self._notify("textDocument/didClose", item)

    def publish(self, news: wire.Published) -> None:
        """Store the problems of an open file, unless they are for an older text."""
        path = wire.path_of(news.uri)
        document = self.open.get(path)
        if document is None or (
            news.version is not None and news.version < document.version
        ):
            return
        self._problems[path] = (
            self.change,
            wire.shorten_all(news.diagnostics[:_MAX_PROBLEMS]),
        )

    def problems(self, path: str) -> Sequence[Diagnostic]:
        return self._problems.get(path, (0, ()))[1]

    def is_outdated(self, path: str) -> bool:
        """Whether nothing was published for the current text of an open file."""
        document = self.open.get(path)
        return (
            document is not None and self._problems.get(path, (-1, ()))[0] < document.since
        )


class _PendingRequest:
    """A request that waits for its response."""

    def __init__(self) -> None:
        self.over, self.message = anyio.Event(), RpcMessage()


class LanguageServer:
    """Call `run` in a task. Every other method raises `ToolFailed` once it has ended."""

    def __init__(self, launch: ServerLaunch) -> None:
        self.name, self.process = (
            launch.spec.program,
            ServerProcess(launch, self._on_message, self._wake),
        )
        self._launch, self._can = launch, wire.Capabilities()
        self._ready, self._started = anyio.Event(), 0.0
        self._pulls = False  # it must be asked for problems, and does not publish them
        self._waiting = dict[int, _PendingRequest]()
        self._last_id = self._stalls = 0
        self._documents = _Documents(self._notify)
        self._busy, self._began, self._news = set[int | str](), False, anyio.Event()

    async def run(self) -> None:
        """Run the server from its start to its end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._initialize)
            await self.process.run()
            group.cancel_scope.cancel()

    async def shut_down(self) -> None:
        """Ask it to end, as the protocol requires, then end it."""
        with anyio.move_on_after(_END_SECONDS):
            if self._ready.is_set() and not self.process.ended.is_set():
                try:
                    await self._ask("shutdown", None)
                    self._notify("exit", None)
                    await self.process.ended.wait()
                except ToolFailed:
                    pass
        self.process.stop("the session was closed")

    async def request(self, method: str, params: object, type_: type[T]) -> Sequence[T]:
        """Send a request. The result is a sequence, also for a single value or null."""
        await self._wait_until_ready()
        response = await self._ask(method, params)
        if response.error is not None:
            message = one_line(response.error.message, _MAX_ERROR_CHARS)
            raise ToolFailed(f"{self.name} could not do it: {message}")
        try:
            return wire.read_all(response.result, type_)
        except ToolFailed as error:
            raise ToolFailed(f"{self.name}: {error}") from error

    async def sync(self, texts: Mapping[str, str], changes: Mapping[str, int]) -> None:
        """Send it the current state of files. `texts` are those that must be open.

        `changes` are changed files of the workspace, with the protocol's numbers for created,
        changed and deleted.
        """
        await self._wait_until_ready()
        self._documents.change += bool(changes)
        if changes:
            events = [{"uri": wire.uri_of(p), "type": n} for p, n in changes.items()]
            self._notify("workspace/didChangeWatchedFiles", {"changes": events})
        for path, text in texts.items():
            self._documents.show(path, text)
        self._documents.close([path for path in self.open if path not in texts])

    @property
    def open(self) -> Sequence[str]:
        """The files that it has open, the least recently shown first."""
        return tuple(self._documents.open)

    async def wait_until_indexed(self) -> None:
        """Wait until it has read the workspace. Raises `ToolFailed` if that takes too long."""
        await self._wait_until_ready()
        with anyio.move_on_after(self._launch.seconds):
            if not self._began:
                with anyio.move_on_after(self._launch.spec.indexes):
                    while not self._busy and not self.process.ended.is_set():
                        await self._wait_for_any_news()
                self._began = True
            while self._busy and not self.process.ended.is_set():
                await self._wait_for_any_news()
                with anyio.move_on_after(_CALM_SECONDS):
                    while not self._busy:
                        await self._wait_for_any_news()

    async def may_know_more(self) -> bool:
        """Whether it has just started; then this waits a moment for news."""
        if anyio.current_time() - self._started > _YOUNG_SECONDS:
            return False
        with anyio.move_on_after(_CALM_SECONDS):
            await self._wait_for_any_news()
        return True

    @property
    def busy(self) -> bool:
        """Whether it reports that it still reads the workspace."""
        return bool(self._busy)

    def column(self, line: str, index: int) -> int:
        return wire.column(line, index, self._can.position_encoding)

    async def problems(
        self, paths: Sequence[str], seconds: float = 0.0
    ) -> Mapping[str, Sequence[Diagnostic]]:
        """The problems of these files, which must be open.

        Raises `ToolFailed` after `seconds`, or after the time for a request if that is 0.
        """
        await self._wait_until_ready()
        try:
            with anyio.fail_after(seconds or self._launch.seconds):
                await self._wait_for_news(paths)
                if self._pulls:
                    return {path: await self._pull(path) for path in paths}
        except TimeoutError as error:
            self._check_running()
            raise ToolFailed(
                f"{self.name} reported no diagnostics within "
                f"{seconds or self._launch.seconds:g} s"
            ) from error
        return {path: self._documents.problems(path) for path in paths}

    async def _pull(self, path: str) -> Sequence[Diagnostic]:
        params = {"textDocument": {"uri": wire.uri_of(path)}}
        reports = await self.request("textDocument/diagnostic", params, wire.Pulled)
        return [item for report in reports for item in report.items][:_MAX_PROBLEMS]

    async def _wait_for_news(self, paths: Sequence[str]) -> None:
        """Wait until it has published the current problems of each file, and sends no more.

        A server may report only now that it must be asked, and then publishes nothing.
        """
        while not self._pulls:
            self._check_running()
            if any(self._documents.is_outdated(path) for path in paths):
                await self._wait_for_any_news()
                continue
            with anyio.move_on_after(_CALM_SECONDS):
                await self._wait_for_any_news()
                continue
            return

    async def _initialize(self) -> None:
        root = self._launch.root
        uri = wire.uri_of(root)
        params = {
            "processId": None,
            "clientInfo": {"name": "refold", "version": __version__},
            "rootPath": root,
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": os.path.basename(root)}],
            "capabilities": wire.CLIENT_CAPABILITIES,
            "initializationOptions": {},
        }
        try:
            response = await self._ask("initialize", params)
            self._can = wire.read(response.result, wire.Initialized).capabilities
        except ToolFailed as error:
            self.process.stop(str(error), hung=self.process.hung)
            return
        self._pulls, self._started = (
            self._can.offers_pulled_diagnostics,
            anyio.current_time(),
        )
        self._notify("initialized", {})
        settings = {"settings": self._launch.spec.settings}
        self._notify("workspace/didChangeConfiguration", settings)
        self._ready.set()

    async def _wait_until_ready(self) -> None:
        with anyio.move_on_after(self._launch.seconds):
            await self._ready.wait()
        if not self._ready.is_set():
            self.process.stop(
                f"it did not start within {self._launch.seconds:g} s", hung=True
            )
        self._check_running()

    def _check_running(self) -> None:
        if self.process.ended.is_set():
            raise ToolFailed(f"{self.name} has ended: {self.process.why}")

    async def _ask(self, method: str, params: object) -> RpcMessage:
        """Send a request and return its response. A timeout counts against the server."""
        self._check_running()
        self._last_id += 1
        id_, waiting = self._last_id, _PendingRequest()
        self._waiting[id_] = waiting
        self.process.queue(wire.request(id_, method, params))
        seconds = self._launch.seconds
        try:
            with anyio.move_on_after(seconds):
                await waiting.over.wait()
        finally:
            del self._waiting[id_]
            if not waiting.over.is_set() and not self.process.ended.is_set():
                self._notify("$/cancelRequest", {"id": id_})
        if not waiting.over.is_set():
            self._stalls += 1
            if self._stalls >= _MAX_STALLS or not self._ready.is_set():
                self.process.stop(f"it did not answer within {seconds:g} s", hung=True)
            raise ToolFailed(f"{self.name} did not answer within {seconds:g} s")
        self._check_running()
        return waiting.message

    def _notify(self, method: str, params: object) -> None:
        self.process.queue(wire.notification(method, params))

    def _on_message(self, message: RpcMessage) -> None:
        if not message.method:
            waiting = self._waiting.get(message.id) if isinstance(message.id, int) else None
            if waiting is not None:
                self._stalls = 0
                waiting.message = message
                waiting.over.set()
            return
        try:
            if isinstance(message.id, str) and len(message.id) > wire.MAX_NAME_CHARS:
                raise ToolFailed("the id of its request is too long")
            self._on_notification(message)
            if message.id is not None:
                self.process.queue(_reply(message, self._launch))
        except ToolFailed as error:
            self.process.log_output(f"{message.method}: {error}")

    def _on_notification(self, message: RpcMessage) -> None:
        match message.method:
            case "textDocument/publishDiagnostics":
                self._documents.publish(wire.read(message.params, wire.Published))
            case "$/progress":
                self._note_progress(message.params)
            case "client/registerCapability":
                capabilities = wire.read(message.params, wire.RegisteredCapabilities)
                methods = {
                    registration.method for registration in capabilities.registrations
                }
                self._pulls = self._pulls or "textDocument/diagnostic" in methods
            case _:
                return
        news, self._news = self._news, anyio.Event()
        news.set()

    def _note_progress(self, params: Raw) -> None:
        progress = wire.read(params, wire.Progress)
        if progress.value.kind == "begin" and len(self._busy) < _MAX_TOKENS:
            self._busy.add(progress.token)
        elif progress.value.kind == "end":
            self._busy.discard(progress.token)

    def _wake(self) -> None:
        """Wake all waiting requests, because the server has exited."""
        self._news.set()
        for waiting in self._waiting.values():
            waiting.over.set()
        self._ready.set()

    async def _wait_for_any_news(self) -> None:
        """Wait until the server sends a notification or ends."""
        await self._news.wait()


def _reply(message: RpcMessage, launch: ServerLaunch) -> bytes:
    """The reply to a request of the server. Requests to change anything are refused."""
    match message.method:
        case "workspace/configuration":
            asked = wire.read(message.params, wire.ConfigurationAsked)
            values = [
                _setting(launch.spec.settings, setting.section)
                for setting in asked.items[:_MAX_TOKENS]
            ]
            return wire.response(message, values)
        case "workspace/workspaceFolders":
            return wire.response(message, [{"uri": wire.uri_of(launch.root)}])
        case "workspace/applyEdit":
            return wire.response(message, {"applied": False})
        case (
            "client/registerCapability"
            | "client/unregisterCapability"
            | "window/workDoneProgress/create"
            | "window/showMessageRequest"
            | "workspace/diagnostic/refresh"
        ):
            return wire.response(message, None)
        case _:
            return wire.unknown_method(message)


def _setting(settings: object, section: str) -> object:
    """The setting of a section: `python.analysis` is in the table `python`."""
    value = settings
    for name in filter(None, section.split(".")):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, object]", value).get(name)
    return value
