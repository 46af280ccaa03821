"""One language server: its requests, its open documents, and the problems that it reports.

Everything here runs in the thread of `language_servers`, which restarts and stops servers.
`server_process` is the program of the server, and `wire` defines the messages.
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
_MAX_DOCUMENTS = 60  # open at the same time; the least recently used is closed
_MAX_PROBLEMS = 1_000  # for one file
_MAX_TOKENS = 100  # of progress reports
_MAX_SETTINGS = 100  # in one reply
_MAX_TIMEOUTS = 2  # consecutive requests without a response; then the server is stopped
_END_SECONDS = 2.0  # to shut down
_YOUNG_SECONDS = 3.0  # for this long after its start, an empty answer is requested again
_MAX_ERROR_CHARS = 500  # the length of its error message
_CALM_SECONDS = 0.5  # after this time without a notification, no more is expected
# The state of a file without published problems: the number of the change, and the problems.
_NOTHING_PUBLISHED: tuple[int, Sequence[Diagnostic]] = (-1, ())


class _Document(Struct):
    text: str
    version: int = 1
    since: int = 0  # the number of the change that produced this text


class _Documents:
    """The files that are open in a server, and the problems that it has published for them."""

    def __init__(self, notify: Callable[[str, object], None]) -> None:
        self._notify = notify
        self.change = 0  # the number of the latest change of a file
        self.open = dict[str, _Document]()
        # The published problems of each file, after the number of the latest change before them.
        self._problems = dict[str, tuple[int, Sequence[Diagnostic]]]()

    def show(self, path: str, text: str) -> None:
        """Open a file in the server, or send its new text. The file is then the newest."""
        document = self.open.pop(path, None)
        if document is not None and document.text == text:
            self.open[path] = document
            return
        self.change += 1
        uri = wire.uri_of(path)
        if document is None:
            self.open[path] = _Document(text, since=self.change)
            item = {"uri": uri, "languageId": language_id(path), "version": 1, "text": text}
            self._notify("textDocument/didOpen", {"textDocument": item})
            return
        version = document.version + 1
        self.open[path] = _Document(text, version, self.change)
        self._notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": uri, "version": version},
                "contentChanges": [{"text": text}],
            },
        )

    def close(self, paths: Sequence[str]) -> None:
        """Close the files at `paths`, and the oldest others if too many stay open."""
        remaining = [path for path in self.open if path not in paths]
        excess_count = max(0, len(remaining) - _MAX_DOCUMENTS)
        for path in (*paths, *remaining[:excess_count]):
            del self.open[path]
            self._problems.pop(path, None)
            item = {"textDocument": {"uri": wire.uri_of(path)}}
            self._notify("textDocument/didClose", item)

    def publish(self, published: wire.Published) -> None:
        """Store the problems that the server publishes for a file.

        Problems of an earlier text are ignored, and so are those of a file that is not open.
        """
        path = wire.path_of(published.uri)
        document = self.open.get(path)
        if document is None:
            return
        if published.version is not None and published.version < document.version:
            return
        problems = wire.shorten_all(published.diagnostics[:_MAX_PROBLEMS])
        self._problems[path] = self.change, problems

    def problems(self, path: str) -> Sequence[Diagnostic]:
        _, problems = self._problems.get(path, _NOTHING_PUBLISHED)
        return problems

    def is_outdated(self, path: str) -> bool:
        """Whether the server has published nothing yet for the current text of an open file."""
        document = self.open.get(path)
        if document is None:
            return False
        change, _ = self._problems.get(path, _NOTHING_PUBLISHED)
        return change < document.since


class _PendingRequest:
    """A request that waits for its response."""

    def __init__(self) -> None:
        self.over = anyio.Event()  # set when the response arrives or the server exits
        self.message = RpcMessage()


class LanguageServer:
    """A language server. Call `run` in a task; after its end, requests raise `ToolFailed`."""

    def __init__(self, launch: ServerLaunch) -> None:
        self.name = launch.spec.program
        self.process = ServerProcess(launch, self._on_message, on_end=self._wake)
        self._launch = launch
        self._capabilities = wire.Capabilities()
        self._ready = anyio.Event()
        self._started = 0.0  # the time at which it was ready
        # True if the server does not publish problems.
        self._must_ask_for_problems = False
        self._pending_requests = dict[int, _PendingRequest]()
        self._last_id = self._timeouts = 0
        self._documents = _Documents(self._notify)
        self._progress_tokens = set[int | str]()  # of indexing that has not ended
        self._has_waited_for_index = False
        self._next_notification = anyio.Event()

    async def run(self) -> None:
        """Run the server from its start to its exit."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._initialize)
            await self.process.run()
            group.cancel_scope.cancel()

    async def shut_down(self) -> None:
        """Ask the server to shut down, as the protocol requires, then kill its process."""
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
        """Send a request, and return its result as a sequence of values.

        A single value becomes a sequence of one, and null an empty sequence. Raises
        `ToolFailed`.
        """
        await self._wait_until_ready()
        response = await self._ask(method, params)
        if response.error is not None:
            message = one_line(response.error.message, _MAX_ERROR_CHARS)
            raise ToolFailed(f"{self.name} could not answer: {message}")
        try:
            return wire.read_all(response.result, type_)
        except ToolFailed as error:
            raise ToolFailed(f"{self.name}: {error}") from error

    async def sync(self, texts: Mapping[str, str], changes: Mapping[str, int]) -> None:
        """Send the current texts of files, and close the open files that are not in `texts`.

        `changes` are changed files of the workspace, with the protocol's numbers for created,
        changed and deleted.
        """
        await self._wait_until_ready()
        if changes:
            self._documents.change += 1
            events = [{"uri": wire.uri_of(p), "type": n} for p, n in changes.items()]
            self._notify("workspace/didChangeWatchedFiles", {"changes": events})
        for path, text in texts.items():
            self._documents.show(path, text)
        self._documents.close([path for path in self.open if path not in texts])

    @property
    def open(self) -> Sequence[str]:
        """The files that are open in the server. Files that were sent first come first."""
        return tuple(self._documents.open)

    async def wait_until_indexed(self) -> None:
        """Wait until the workspace is indexed, or the time limit of a request is over.

        Raises `ToolFailed` if the server has not started by then.
        """
        await self._wait_until_ready()
        with anyio.move_on_after(self._launch.seconds):
            if not self._has_waited_for_index:
                # A new server reports only after some time that it indexes.
                with anyio.move_on_after(self._launch.spec.indexes):
                    while not self.busy and not self.process.ended.is_set():
                        await self._wait_for_notification()
                self._has_waited_for_index = True
            while self.busy and not self.process.ended.is_set():
                await self._wait_for_notification()
                # Indexing may continue with a new report shortly after the last one.
                with anyio.move_on_after(_CALM_SECONDS):
                    while not self.busy:
                        await self._wait_for_notification()

    async def may_know_more(self) -> bool:
        """Return whether the server started so recently that its last answer may be incomplete.

        If so, first wait briefly for a notification.
        """
        if anyio.current_time() - self._started > _YOUNG_SECONDS:
            return False
        with anyio.move_on_after(_CALM_SECONDS):
            await self._wait_for_notification()
        return True

    @property
    def busy(self) -> bool:
        """Whether the server reports that it is still indexing the workspace."""
        return bool(self._progress_tokens)

    def column(self, line: str, index: int) -> int:
        return wire.column(line, index, self._capabilities.position_encoding)

    async def problems(
        self, paths: Sequence[str], seconds: float = 0.0
    ) -> Mapping[str, Sequence[Diagnostic]]:
        """Return the problems of files that are open in the server, by path.

        Raises `ToolFailed` if they do not arrive within `seconds`; 0 means the limit of a
        request.
        """
        await self._wait_until_ready()
        limit = seconds or self._launch.seconds
        try:
            with anyio.fail_after(limit):
                await self._wait_for_problems(paths)
                if self._must_ask_for_problems:
                    return {path: await self._pull(path) for path in paths}
        except TimeoutError as error:
            self._check_running()
            raise ToolFailed(
                f"{self.name} reported no diagnostics within {limit:g} s"
            ) from error
        return {path: self._documents.problems(path) for path in paths}

    async def _pull(self, path: str) -> Sequence[Diagnostic]:
        params = {"textDocument": {"uri": wire.uri_of(path)}}
        reports = await self.request("textDocument/diagnostic", params, wire.Pulled)
        return [item for report in reports for item in report.items][:_MAX_PROBLEMS]

    async def _wait_for_problems(self, paths: Sequence[str]) -> None:
        """Wait until the server has published the current problems of each file.

        Also return if the server reports that it must be asked for problems.
        """
        while not self._must_ask_for_problems:
            self._check_running()
            if any(self._documents.is_outdated(path) for path in paths):
                await self._wait_for_notification()
                continue
            with anyio.move_on_after(_CALM_SECONDS) as wait:
                await self._wait_for_notification()  # it may publish other problems
            if wait.cancelled_caught:
                return

    async def _initialize(self) -> None:
        """Tell the server about the client, the workspace and the settings."""
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
            self._capabilities = wire.read(response.result, wire.Initialized).capabilities
        except ToolFailed as error:
            self.process.stop(str(error), hung=self.process.hung)
            return
        self._must_ask_for_problems = self._capabilities.offers_pulled_diagnostics
        self._started = anyio.current_time()
        self._notify("initialized", {})
        settings = {"settings": self._launch.spec.settings}
        self._notify("workspace/didChangeConfiguration", settings)
        self._ready.set()

    async def _wait_until_ready(self) -> None:
        """Wait until the server has started. Raises `ToolFailed` if it exits or is too slow."""
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
        """Send a request and return its response. After several timeouts the server is killed.

        Raises `ToolFailed`.
        """
        self._check_running()
        self._last_id += 1
        id_ = self._last_id
        pending = _PendingRequest()
        self._pending_requests[id_] = pending
        self.process.queue(wire.request(id_, method, params))
        seconds = self._launch.seconds
        try:
            with anyio.move_on_after(seconds):
                await pending.over.wait()
        finally:
            del self._pending_requests[id_]
            if not pending.over.is_set() and not self.process.ended.is_set():
                self._notify("$/cancelRequest", {"id": id_})
        if not pending.over.is_set():
            self._timeouts += 1
            if self._timeouts >= _MAX_TIMEOUTS or not self._ready.is_set():
                self.process.stop(f"it did not answer within {seconds:g} s", hung=True)
            raise ToolFailed(f"{self.name} did not answer within {seconds:g} s")
        self._check_running()
        return pending.message

    def _notify(self, method: str, params: object) -> None:
        self.process.queue(wire.notification(method, params))

    def _on_message(self, message: RpcMessage) -> None:
        """Handle a message of the server: a response, a notification or a request."""
        if not message.method:
            self._on_response(message)
            return
        try:
            if isinstance(message.id, str) and len(message.id) > wire.MAX_NAME_CHARS:
                raise ToolFailed("the id of its request is too long")
            self._on_notification(message)
            if message.id is not None:
                self.process.queue(_reply(message, self._launch))
        except ToolFailed as error:
            self.process.log_output(f"{message.method}: {error}")

    def _on_response(self, message: RpcMessage) -> None:
        """Wake the task that waits for this response. An unknown response is ignored."""
        if not isinstance(message.id, int):
            return
        pending = self._pending_requests.get(message.id)
        if pending is not None:
            self._timeouts = 0
            pending.message = message
            pending.over.set()

    def _on_notification(self, message: RpcMessage) -> None:
        """Store what the server reports, and wake tasks that wait for a notification."""
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
                if "textDocument/diagnostic" in methods:
                    self._must_ask_for_problems = True
            case _:  # nothing waits for it
                return
        arrived = self._next_notification
        self._next_notification = anyio.Event()
        arrived.set()

    def _note_progress(self, params: Raw) -> None:
        """Store the token of work that the server begins, until that work ends."""
        progress = wire.read(params, wire.Progress)
        if progress.value.kind == "begin" and len(self._progress_tokens) < _MAX_TOKENS:
            self._progress_tokens.add(progress.token)
        elif progress.value.kind == "end":
            self._progress_tokens.discard(progress.token)

    def _wake(self) -> None:
        """Wake everything that waits, because the server has exited."""
        self._next_notification.set()
        for pending in self._pending_requests.values():
            pending.over.set()
        self._ready.set()

    async def _wait_for_notification(self) -> None:
        """Wait until the server sends a notification or exits."""
        await self._next_notification.wait()


def _reply(message: RpcMessage, launch: ServerLaunch) -> bytes:
    """Return the reply to a request of the server. A request to change something is refused."""
    match message.method:
        case "workspace/configuration":
            asked = wire.read(message.params, wire.ConfigurationAsked)
            values = [
                _setting(launch.spec.settings, setting.section)
                for setting in asked.items[:_MAX_SETTINGS]
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
    """Return the setting of a section, or None if it does not exist.

    The section `python.analysis` is the table `analysis` in the table `python`.
    """
    value = settings
    for name in filter(None, section.split(".")):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, object]", value).get(name)
    return value
