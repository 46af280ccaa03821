"""Implements the methods of the protocol: opens sessions, sends prompts, changes settings.

The SDK checks the parameters and calls these methods. `client.host` opens and closes a
conversation; `open_session` handles one that is open.
"""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    FileSystemCapabilities,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)
from anyio import to_thread
from anyio.abc import TaskGroup

from refold._version import __version__
from refold.acp import session_choices
from refold.acp.editor_buffers import EditorBuffers, buffers_of
from refold.acp.open_session import EditorFeatures, OpenSession
from refold.acp.prompt_content import ContentBlock, message_of
from refold.client.event_documents import FEED_START, Cursor
from refold.client.host import Conversation, Host
from refold.client.new_conversation import EditorConversation
from refold.client.protocol import MAX_NAME_CHARS
from refold.client.types import acting_as
from refold.errors import BadInput, RefoldError
from refold.views.escape import escape_to_one_line
from refold.views.session_list import SessionDocument

PROTOCOL_VERSION = 1  # of the protocol
DELETE_METHOD = "session/delete"  # the SDK has its types, but does not route it
_McpServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_INVALID, _FAILED = -32602, -32603  # codes of errors in JSON-RPC
_PAGE_SESSIONS = 50  # in one page of a list
_MAX_CURSOR_DIGITS = 9
_MAX_SERVER_NAME_CHARS = 32
_INVALID_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]+")
P = ParamSpec("P")
T = TypeVar("T")
_Method: TypeAlias = Callable[Concatenate["EditorAgent", P], Awaitable[T]]


def _raise_protocol_errors(method: _Method[P, T]) -> _Method[P, T]:
    """Make a method act as the editor's person, and raise errors of refold as protocol errors.

    The messages stay unchanged.
    """

    @wraps(method)
    async def call(self: "EditorAgent", *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with acting_as(self.person):
                return await method(self, *args, **kwargs)
        except BadInput as error:
            raise RequestError(_INVALID, str(error)) from error
        except RefoldError as error:
            raise RequestError(_FAILED, str(error)) from error

    return call


_MAX_ID_CHARS = 60  # in a session's id


class EditorAgent:
    """The agent for one editor. The tasks of its sessions run in `group`."""

    def __init__(self, host: Host, group: TaskGroup) -> None:
        self._host = host
        self._group = group
        self._open = dict[str, OpenSession]()
        self._editor: Client | None = None
        self._features = EditorFeatures()
        self.person = ""  # the name of the editor, recorded as the origin of its actions
        self._fs: FileSystemCapabilities | None = None

    def on_connect(self, conn: Client) -> None:
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        """Note what the editor can do, and return what refold can do."""
        if client_info is not None:
            name = client_info.title or client_info.name
            self.person = escape_to_one_line(name)[:MAX_NAME_CHARS]
        if client_capabilities is None:
            self._features = EditorFeatures()
            self._fs = None
        else:
            elicitation = client_capabilities.elicitation
            metadata = client_capabilities.field_meta or {}
            self._features = EditorFeatures(
                forms=elicitation is not None and elicitation.form is not None,
                draws=metadata.get("terminal_output") is True,
            )
            self._fs = client_capabilities.fs
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="refold", title="refold", version=__version__),
            auth_methods=[],
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
        )

    @_raise_protocol_errors
    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        raise BadInput(
            f"there is no way to authenticate {method_id!r}: set a key with refold auth set"
        )

    @_raise_protocol_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[_McpServer] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        """Begin a session in `cwd`, and return its id, modes and options."""
        setup = self._to_conversation(cwd, additional_directories, mcp_servers)
        conversation = await self._host.create(setup)
        _set_session_of_buffers(setup, conversation.session.id)
        session = await self._start_session(conversation, after=None)
        return NewSessionResponse(
            session_id=session.id,
            modes=session_choices.modes(session.session),
            config_options=session_choices.options(session.session),
        )

    @_raise_protocol_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[_McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Open a session, and send the editor all that happened in it."""
        setup = self._to_conversation(cwd, additional_directories, mcp_servers)
        session = await self._open_session(session_id, setup, after=FEED_START)
        return LoadSessionResponse(
            modes=session_choices.modes(session.session),
            config_options=session_choices.options(session.session),
        )

    @_raise_protocol_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[_McpServer] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Open a session. The editor gets only what happens from now on."""
        setup = self._to_conversation(cwd, additional_directories, mcp_servers)
        session = await self._open_session(session_id, setup, after=None)
        return ResumeSessionResponse(
            modes=session_choices.modes(session.session),
            config_options=session_choices.options(session.session),
        )

    @_raise_protocol_errors
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[_McpServer] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        """Copy a session, and open the copy. The editor gets only what happens from now on."""
        setup = self._to_conversation(cwd, additional_directories, mcp_servers)
        source = await self._open_conversation(session_id, setup)
        # The fork needs a setup of its own, because a setup takes the id of its session.
        fork_setup = self._to_conversation(cwd, additional_directories, mcp_servers)
        fork_id = await source.session.fork()
        session = await self._open_session(fork_id, fork_setup, after=None)
        return ForkSessionResponse(
            session_id=session.id,
            modes=session_choices.modes(session.session),
            config_options=session_choices.options(session.session),
        )

    @_raise_protocol_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """Return a page of the sessions, or of the sessions in `cwd`.

        `cursor` is the cursor of the page before: the number of sessions to skip.
        """
        if cursor and not (cursor.isascii() and cursor.isdecimal()):
            raise BadInput(f"{cursor!r} is not a cursor of this list: begin without one")
        # The number of sessions before the page. A longer number would be past all sessions.
        start = int(cursor[:_MAX_CURSOR_DIGITS]) if cursor else 0
        end = start + _PAGE_SESSIONS
        # One more than the page has: it shows whether another page follows.
        cards = await to_thread.run_sync(self._host.stored.cards, end + 1, cwd or "")
        has_next_page = len(cards) > end
        return ListSessionsResponse(
            sessions=[_info(card) for card in cards[start:end]],
            next_cursor=str(end) if has_next_page else None,
        )

    @_raise_protocol_errors
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        self._find_open(session_id)
        await self._host.close(session_id)
        self._open.pop(session_id, None)
        return CloseSessionResponse()

    @_raise_protocol_errors
    async def delete_session(self, session_id: str) -> DeleteSessionResponse:
        """Delete a session, with its subagents. Deleting a session that does not exist
        succeeds.
        """
        if "/" in session_id:  # a subagent, which is not deleted alone
            return DeleteSessionResponse()
        if await to_thread.run_sync(self._host.stored.exists, session_id):
            await self._host.delete(session_id)
            self._open.pop(session_id, None)
        return DeleteSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Handle methods of the protocol that the SDK does not route (see `serving`)."""
        if method != DELETE_METHOD:
            raise RequestError.method_not_found(f"_{method}")
        request = DeleteSessionRequest.model_validate(params)
        response = await self.delete_session(request.session_id)
        return response.model_dump(mode="json", by_alias=True, exclude_none=True)

    @_raise_protocol_errors
    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        await session_choices.choose(
            self._find_open(session_id).session, session_choices.MODE, mode_id
        )
        return SetSessionModeResponse()

    @_raise_protocol_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._find_open(session_id).session
        await session_choices.choose(session, config_id, value)
        return SetSessionConfigOptionResponse(
            config_options=session_choices.options(session)
        )

    @_raise_protocol_errors
    async def prompt(
        self, session_id: str, prompt: list[ContentBlock], **_: Any
    ) -> PromptResponse:
        return await self._find_open(session_id).prompt(message_of(prompt), self._host)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._open.get(session_id)) is not None:
            with acting_as(self.person):
                await session.cancel()

    def _find_open(self, id_: str) -> OpenSession:
        session = self._open.get(id_)
        if session is None or session.closed:
            raise BadInput(f"the session {id_!r} is not open: load or resume it first")
        return session

    def _to_conversation(
        self,
        cwd: str,
        more_directories: Sequence[str] | None,
        servers: Sequence[_McpServer] | None,
    ) -> EditorConversation:
        """Return the start values of a conversation, from the parameters of a request.

        Raises `BadInput` if a path is not an absolute directory.
        """
        directories = (cwd, *(more_directories or ()))
        for path in directories:
            if not os.path.isabs(path) or not os.path.isdir(path):
                raise BadInput(f"{path!r} is not the absolute path of a directory")
        assert self._editor is not None, "the SDK connects before it calls"
        return EditorConversation(
            workspace=cwd,
            roots=tuple(map(os.path.realpath, more_directories or ())),
            mcp_servers=_server_configs(servers),
            editor=buffers_of(self._editor, self._fs, directories),
        )

    async def _open_conversation(self, id_: str, setup: EditorConversation) -> Conversation:
        """Open the conversation with this id. Raises `BadInput` if there is none."""
        # An id with a slash belongs to a subagent, or leads out of the directory of sessions.
        is_valid_id = len(id_) <= _MAX_ID_CHARS and "/" not in id_ and "\0" not in id_
        if not is_valid_id or not await to_thread.run_sync(self._host.stored.exists, id_):
            raise BadInput(f"there is no session {id_[:_MAX_ID_CHARS]!r}")
        _set_session_of_buffers(setup, id_)
        return await self._host.open(id_, setup)

    async def _open_session(
        self, id_: str, setup: EditorConversation, *, after: Cursor | None
    ) -> OpenSession:
        """Open a session. The editor gets the events after `after`.

        If `after` is None, the editor gets only new events.
        """
        conversation = await self._open_conversation(id_, setup)
        previous = self._open.pop(id_, None)
        if previous is not None:
            await previous.leave()
        return await self._start_session(conversation, after=after)

    async def _start_session(
        self, conversation: Conversation, *, after: Cursor | None
    ) -> OpenSession:
        """Show the events of a conversation after `after` in the editor.

        If `after` is None, show only new events.
        """
        assert self._editor is not None, "the SDK connects before it calls"
        session = OpenSession(conversation, self._editor, self._group, self._features)
        self._open[session.id] = session
        self._group.start_soon(session.follow, after)
        await session.started.wait()
        self._group.start_soon(session.tell_commands)
        return session


def _server_configs(servers: Sequence[_McpServer] | None) -> Mapping[str, object]:
    """Return the servers in the form of .mcp.json, each under a different name.

    A name has only characters that are valid in names of tools.
    """
    result = dict[str, object]()
    for server in servers or ():
        name, config = _name_and_config(server)
        while name in result:
            name += "_"
        result[name] = config
    return result


def _set_session_of_buffers(setup: EditorConversation, id_: str) -> None:
    """Set the id of the session, which each request for a file of the editor must contain."""
    if isinstance(setup.editor, EditorBuffers):
        setup.editor.session = id_


def _name_and_config(server: _McpServer) -> tuple[str, Mapping[str, object]]:
    """Return a name for the server, and its configuration in the form of .mcp.json.

    The name has only characters that are valid in names of tools.
    """
    match server:
        case McpServerStdio(command=command, args=args, env=env):
            values = {pair.name: pair.value for pair in env}
            config = {"type": "stdio", "command": command, "args": args, "env": values}
        case HttpMcpServer() | SseMcpServer():
            headers = {pair.name: pair.value for pair in server.headers}
            config = {"type": server.type, "url": server.url, "headers": headers}
        case _:
            raise BadInput(
                f"the MCP server {server.name!r} has a transport that refold does not know"
            )
    name = _INVALID_NAME_CHARS.sub("-", server.name).strip("-_")
    return name[:_MAX_SERVER_NAME_CHARS] or "server", config


def _info(card: SessionDocument) -> SessionInfo:
    return SessionInfo(
        session_id=card.id,
        cwd=card.directory,
        title=card.name or card.title,
        updated_at=datetime.fromtimestamp(card.changed, UTC).isoformat(),
    )
