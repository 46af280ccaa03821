"""Terminals in the developer page: each runs the user's shell over a WebSocket of its own.

They exist only with `refold serve --terminal`, and only one person can open them. A page
first gets a launch token by POST, and sends it in the first frame of the socket. The token
is valid once, for seconds, for one person and one conversation. `guard` has checked cookie
and Origin of both requests.

Binary frames have typed text and printed output. Text frames are `Start`, `Resize` and
`Shown` from the page, and `Started` and `Ended` from the server. Output waits until the
page has shown the output before it. The start, the command lines and the end are recorded;
`shell_process` runs the shell.
"""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from fastapi import FastAPI, Request, Response, WebSocket
from msgspec import Meta, Struct
from starlette.websockets import WebSocketDisconnect

from refold.client.host import Host
from refold.client.hosted_conversation import OwnConversation
from refold.client.terminal_log import TerminalLog
from refold.client.types import TerminalEnded, acting_person
from refold.errors import BadInput, RefoldError
from refold.server.access import PAGE_PERSON
from refold.server.api import Api, error_response, json_response, read_body
from refold.server.guard import Rejected
from refold.server.listening import ListenOptions
from refold.server.rest import CONVERSATION_PATH, open_conversation
from refold.server.shell_process import ShellProcess, find_shell, run_shell
from refold.views.shell_message import shell_message

TERMINALS_PATH = f"{CONVERSATION_PATH}/terminals"
MAX_TERMINALS = 8  # that run at once
MAX_TOKENS = 32  # that are not used yet
MAX_FRAME_BYTES = 64 * 1024  # of typed text
MAX_TYPED_BYTES = 4 * 1024 * 1024  # that wait for a program to read them
MAX_SHARED_CHARS = 16_000  # of output that the user sends to the model
WINDOW_BYTES = 256 * 1024  # of output that was sent and not shown yet
TOKEN_SECONDS = 30.0
FIRST_FRAME_SECONDS = 5.0
IDLE_SECONDS = 4 * 3600.0  # without a key and without output
_STOP_SECONDS = 3.0  # in which all terminals can end with the server
_DRAIN_SECONDS = 1.0  # in which the rest of the output is read after the shell has exited
_TOKEN_BYTES = 32
_OTHER_PERSON = (
    "a terminal is for the person who started this server, on the developer page"
)
_BAD_TOKEN = "this launch token was used, is too old, or is for another conversation"
TERMINAL_PERMISSION = "--terminal gives a shell of yours to the page"
_TOO_MANY = f"{MAX_TERMINALS} terminals are open on this server: close one"
_NOT_SHOWN = "the page says that it showed more than it got"
_OPEN_ELSEWHERE = (
    "another process has this conversation open, so a terminal here could not be recorded: "
    "use `!command` there, or leave it there first"
)
# The name of a command, for output that was selected in a terminal.
_OUTPUT_LABEL = "terminal"

Reason: TypeAlias = Literal["exited", "closed", "idle", "stopped", "failed"]
Rows = Annotated[int, Meta(ge=1, le=1000)]


class Launched(Struct, frozen=True):
    """The launch token of a new terminal.

    `token` is valid once, for seconds: send it in the first frame of the socket.
    """

    token: str


class SelectedOutput(Struct, frozen=True, forbid_unknown_fields=True):
    """What the user selected in a terminal, for the model."""

    text: str


class _Frame(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """A text frame."""


class Start(_Frame, frozen=True, tag="start"):
    token: str
    rows: Rows
    columns: Rows


class Resize(_Frame, frozen=True, tag="resize"):
    rows: Rows
    columns: Rows


class Shown(_Frame, frozen=True, tag="shown"):
    """The page has shown this number of further bytes of the output."""

    bytes: Annotated[int, Meta(ge=1)]


class Started(_Frame, frozen=True, tag="started"):
    shell: str
    directory: str


class Ended(_Frame, frozen=True, tag="ended"):
    reason: Reason
    code: int | None = None  # the exit code of the shell
    problem: str = ""


class LaunchTokens:
    """The launch tokens that are not used yet, each with its conversation and person."""

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._uses = dict[str, tuple[str, str, float]]()  # conversation, person, expiry
        self._clock = clock

    def issue(self, conversation: str, person: str) -> str:
        """Return a new token with which this person can open a terminal of this conversation.

        Expired tokens are dropped, and also the oldest ones if there are too many.
        """
        now = self._clock()
        valid = [
            (token, (id_, owner, expiry))
            for token, (id_, owner, expiry) in self._uses.items()
            if expiry > now
        ]
        self._uses = dict(valid[-(MAX_TOKENS - 1) :])  # with room for the new one
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._uses[token] = (conversation, person, now + TOKEN_SECONDS)
        return token

    def redeem(self, token: str, conversation: str, person: str) -> bool:
        """Use the token up. Return whether it was made for this conversation and person."""
        token_conversation, token_person, expiry = self._uses.pop(token, ("", "", 0.0))
        if self._clock() >= expiry:
            return False
        return (token_conversation, token_person) == (conversation, person)


class Terminals:
    """All terminals of a server. `environ` has the environment variables of the shells.

    Only `person` may open terminals; "" stands for the person of links that name none.
    """

    def __init__(self, host: Host, environ: Mapping[str, str], person: str = "") -> None:
        self.host, self.environ, self._person = host, environ, person or PAGE_PERSON
        self.tokens = LaunchTokens()
        self._open = set[_Terminal]()
        self._ended = anyio.Event()

    def launch(self, id_: str) -> str:
        """Return a launch token for a terminal of the conversation `id_`.

        Raises `Rejected` if the acting person may not open terminals, or if too many are
        open.
        """
        self.check_person()
        self.check_terminal_count()
        return self.tokens.issue(id_, acting_person())

    def check_person(self) -> None:
        if acting_person() != self._person:  # "" is a program, which needs no page
            raise Rejected(403, _OTHER_PERSON)

    def check_terminal_count(self) -> None:
        if len(self._open) >= MAX_TERMINALS:
            raise Rejected(429, _TOO_MANY)

    async def run(self, terminal: "_Terminal") -> None:
        """Run a terminal to its end, and count it as open until then."""
        self._open.add(terminal)
        try:
            await terminal.run()
        finally:
            self._open.remove(terminal)
            self._ended.set()
            self._ended = anyio.Event()

    async def stop(self) -> None:
        """End all terminals, and wait until their ends are recorded."""
        for terminal in self._open:
            terminal.finish("stopped")
        with anyio.move_on_after(_STOP_SECONDS):
            while self._open:
                await self._ended.wait()


def check_not_shared(setup: ListenOptions, permission: str) -> None:
    """Raise `BadInput` if other machines can reach the server.

    `permission` begins the message: it names the flag and the right that the flag gives.
    """
    flag = ""
    if setup.beyond_loopback:
        flag = f"--host {setup.host}"
    elif setup.names:
        flag = f"--name {setup.names[0]}"
    if flag:
        raise BadInput(
            f"{permission}, and {flag} lets others reach it: leave out one of the two"
        )


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def add_terminals(api: Api, app: FastAPI, terminals: Terminals) -> None:
    @api.route("POST", TERMINALS_PATH, Launched, status=201)
    async def launch(id_: str) -> Response:
        """Return a launch token for a terminal of this conversation, valid once, for
        seconds.
        """
        await _own_conversation(terminals.host, id_)
        return json_response(Launched(terminals.launch(id_)), 201)

    @api.route("POST", f"{TERMINALS_PATH}/output", None, status=204, body=SelectedOutput)
    async def share(request: Request, id_: str) -> Response:
        """Send what was selected in a terminal to the model, with the next message."""
        terminals.check_person()
        chat = await open_conversation(terminals.host, id_)
        text = (await read_body(request, SelectedOutput)).text.strip("\n")
        if not text.strip() or len(text) > MAX_SHARED_CHARS:
            raise BadInput(
                f"the selection has {len(text):,} characters: select some text, and at most "
                f"{MAX_SHARED_CHARS:,} characters"
            )
        message = shell_message(_OUTPUT_LABEL, text, "selected by the person in a terminal")
        await chat.session.record_command(_OUTPUT_LABEL, message)
        return Response(status_code=204)

    @app.websocket(f"{TERMINALS_PATH}/ws")
    async def connect(socket: WebSocket, id_: str) -> None:
        try:
            terminals.check_person()
            chat = await _own_conversation(terminals.host, id_)
        except (RefoldError, Rejected) as error:
            await socket.send_denial_response(error_response(error))
            return
        await socket.accept()
        with suppress(WebSocketDisconnect, RuntimeError):  # the page was closed
            try:
                start = await _first_frame(socket)
                if not terminals.tokens.redeem(start.token, id_, acting_person()):
                    raise Rejected(403, _BAD_TOKEN)
                terminals.check_terminal_count()
            except (BadInput, Rejected) as error:
                await _end(socket, Ended("failed", problem=str(error)))
                return
            await terminals.run(_Terminal(socket, chat, terminals.environ, start))


async def _own_conversation(host: Host, id_: str) -> OwnConversation:
    """Return the conversation, which is opened if necessary.

    Raises an error unless this process can write its journal.
    """
    chat = await open_conversation(host, id_)
    if not isinstance(chat, OwnConversation) or chat.holder:
        raise BadInput(_OPEN_ELSEWHERE)
    return chat


async def _first_frame(socket: WebSocket) -> Start:
    """Return the first frame that the page sends: a `Start`, with the launch token.

    Raises `BadInput` if the first frame is another one, or does not arrive in time.
    """
    with anyio.move_on_after(FIRST_FRAME_SECONDS):
        message = await socket.receive()
        frame = _decode(message.get("text") or "")
        if isinstance(frame, Start):
            return frame
    raise BadInput("the first frame is a start with a launch token, and comes at once")


def _decode(text: str) -> Start | Resize | Shown:
    """Decode a text frame of a page. Raises `BadInput` if it is invalid or too large."""
    try:
        if len(text) > MAX_FRAME_BYTES:
            raise BadInput(f"a frame may have {MAX_FRAME_BYTES:,} bytes")
        return msgspec.json.decode(text, type=Start | Resize | Shown)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not a frame of a terminal: {error}") from error


async def _end(socket: WebSocket, frame: Ended) -> None:
    await socket.send_text(msgspec.json.encode(frame).decode())
    await socket.close(1000)


class _Terminal:
    """One terminal, from its first frame to its end."""

    def __init__(
        self,
        socket: WebSocket,
        chat: OwnConversation,
        environ: Mapping[str, str],
        start: Start,
    ) -> None:
        self._socket, self._chat, self._environ, self._start = socket, chat, environ, start
        self._scope = anyio.CancelScope()
        self._reason: Reason | None = None
        self._problem = ""
        self._unshown = 0  # bytes of output that were sent and not shown
        self._output_shown = anyio.Event()
        self._typed = bytearray()  # typed bytes that wait for a program
        self._keys_typed = anyio.Event()
        # Ends when the terminal was not used for too long; each use moves its deadline.
        self._idle_scope = anyio.CancelScope(deadline=anyio.current_time() + IDLE_SECONDS)
        self._number = 0  # of the terminal in the journal
        self._read_all = anyio.Event()  # set at the end of the output

    def finish(self, reason: Reason, problem: str = "") -> None:
        """End the terminal for this reason. Only the first call has an effect.

        `problem` says what failed, for the user; "" if nothing did.
        """
        if self._reason is None:
            self._reason, self._problem = reason, problem
        self._scope.cancel()

    async def run(self) -> None:
        """Run and record the shell, and tell the page how it ended."""
        directory = self._chat.session.view.session.directory
        shell = find_shell(self._environ, directory)
        code = None
        try:
            with self._chat.hold():
                self._number = await self._log.start(shell, directory)
                code = await self._run_shell(shell, directory)
        except RefoldError as error:  # the end could not be recorded
            self.finish("failed", str(error))
        await _end(self._socket, Ended(self._reason or "stopped", code, self._problem))

    @property
    def _log(self) -> TerminalLog:
        return self._chat.session.terminal_log

    async def _run_shell(self, shell: str, directory: str) -> int | None:
        """Run the shell, record its end, and return its exit code.

        Return None if it was not started, or has not exited.
        """
        rows, columns = self._start.rows, self._start.columns
        running: ShellProcess | None = None  # None: the shell was not started
        try:
            async with run_shell(shell, directory, self._environ, rows, columns) as running:
                with self._scope:
                    await self._send(
                        msgspec.json.encode(Started(shell, directory)).decode()
                    )
                    async with anyio.create_task_group() as group:
                        self._connect(running, group)
                        await self._receive(running)
        except RefoldError as error:
            self.finish("failed", str(error))
        finally:
            code = running.code if running is not None else None
            reports_commands = running is not None and running.reports_commands
            event = TerminalEnded(
                terminal=self._number,
                reason=self._reason or "stopped",
                code=code,
                reports_commands=reports_commands,
                problem=self._problem,
            )
            with anyio.CancelScope(shield=True):
                await self._log.end(event)
        return code

    def _connect(self, running: ShellProcess, group: TaskGroup) -> None:
        """Start the tasks that connect the shell to the page, or that end the terminal."""
        for work in (self._send_output, self._write_keys, self._await_exit):
            group.start_soon(work, running)
        group.start_soon(self._watch_idle)
        group.start_soon(self._await_close)

    async def _send_output(self, running: ShellProcess) -> None:
        """Send the output to the page, and record the entered command lines.

        It waits while the page has not shown enough of the output that was sent before.
        """
        while True:
            while self._unshown >= WINDOW_BYTES:
                self._output_shown = anyio.Event()
                await self._output_shown.wait()
            output, commands = await running.read()
            if not (output or commands):
                self._read_all.set()
                return
            self._note_use()
            for mark in commands:
                try:
                    await self._log.enter(self._number, mark.command)
                except RefoldError as error:
                    self.finish("failed", f"a command could not be recorded: {error}")
                    return
            if output:
                self._unshown += len(output)
                await self._send(output)

    async def _send(self, frame: str | bytes) -> None:
        """Send a frame to the page; if the page was closed, finish the terminal."""
        try:
            if isinstance(frame, str):
                await self._socket.send_text(frame)
            else:
                await self._socket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError):  # the page was closed
            self.finish("closed")

    async def _write_keys(self, running: ShellProcess) -> None:
        """Write what the user has typed to the shell, and wait while no program reads it."""
        while True:
            if not self._typed:
                self._keys_typed = anyio.Event()
                await self._keys_typed.wait()
            piece = bytes(self._typed[:MAX_FRAME_BYTES])
            with suppress(OSError):  # no program reads any more
                await running.write(piece)
            del self._typed[: len(piece)]

    async def _receive(self, running: ShellProcess) -> None:
        """Handle the frames of the page until it is closed, or sends an invalid frame."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self.finish("closed")
                return
            try:
                self._handle_frame(message, running)
            except BadInput as error:
                self.finish("failed", str(error))
                return

    def _handle_frame(self, message: Mapping[str, object], running: ShellProcess) -> None:
        """Handle a frame of the page. Raises `BadInput` for an invalid or too large one."""
        self._note_use()
        match message:
            case {"bytes": bytes(keys)}:
                if len(keys) > MAX_FRAME_BYTES:
                    raise BadInput(f"a frame may have {MAX_FRAME_BYTES:,} bytes")
                if len(self._typed) + len(keys) > MAX_TYPED_BYTES:
                    raise BadInput(
                        f"more than {MAX_TYPED_BYTES:,} typed bytes are not read"
                    )
                self._typed += keys
                self._keys_typed.set()
                return
            case {"text": str(text)}:
                frame = _decode(text)
            case _:
                raise BadInput("this is not a frame of a terminal")
        match frame:
            case Resize(rows, columns):
                running.resize(rows, columns)
            case Shown(count):
                if count > self._unshown:
                    raise BadInput(_NOT_SHOWN)
                self._unshown -= count
                self._output_shown.set()
            case Start():
                raise BadInput("this terminal has started already")

    async def _await_exit(self, running: ShellProcess) -> None:
        await running.wait()
        # Programs that the shell left running may still print.
        with anyio.move_on_after(_DRAIN_SECONDS):
            await self._read_all.wait()
        self.finish("exited")

    async def _await_close(self) -> None:
        await self._chat.wait_closed()
        self.finish("stopped")

    async def _watch_idle(self) -> None:
        with self._idle_scope:
            await anyio.sleep_forever()
        self.finish("idle")

    def _note_use(self) -> None:
        self._idle_scope.deadline = anyio.current_time() + IDLE_SECONDS
