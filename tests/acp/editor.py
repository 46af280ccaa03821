"""Connects an editor, the client of the official SDK, to `refold acp` as a process.

Every message, in both directions, is checked against the models of the SDK.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
from acp import schema
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.meta import AGENT_METHODS, CLIENT_METHODS
from pydantic import BaseModel, TypeAdapter

from tests.cli.running import Document, command, script

Said = Callable[[schema.ToolCallUpdate, list[schema.PermissionOption]], str]
LONG = 60.0  # seconds; only a program that hangs takes longer

_CHECKED: Mapping[str, tuple[Any, Any]] = {  # the parameters and the result of each method
    AGENT_METHODS["initialize"]: (schema.InitializeRequest, schema.InitializeResponse),
    AGENT_METHODS["authenticate"]: (schema.AuthenticateRequest, schema.AuthenticateResponse),
    AGENT_METHODS["session_new"]: (schema.NewSessionRequest, schema.NewSessionResponse),
    AGENT_METHODS["session_load"]: (schema.LoadSessionRequest, schema.LoadSessionResponse),
    AGENT_METHODS["session_list"]: (schema.ListSessionsRequest, schema.ListSessionsResponse),
    AGENT_METHODS["session_fork"]: (schema.ForkSessionRequest, schema.ForkSessionResponse),
    AGENT_METHODS["session_resume"]: (
        schema.ResumeSessionRequest, schema.ResumeSessionResponse,
    ),
    AGENT_METHODS["session_close"]: (schema.CloseSessionRequest, schema.CloseSessionResponse),
    AGENT_METHODS["session_prompt"]: (schema.PromptRequest, schema.PromptResponse),
    AGENT_METHODS["session_cancel"]: (schema.CancelNotification, None),
    AGENT_METHODS["session_set_mode"]: (
        schema.SetSessionModeRequest, schema.SetSessionModeResponse,
    ),
    AGENT_METHODS["session_set_config_option"]: (
        schema.SetSessionConfigOptionSelectRequest, schema.SetSessionConfigOptionResponse,
    ),
    CLIENT_METHODS["session_update"]: (schema.SessionNotification, None),
    CLIENT_METHODS["session_request_permission"]: (
        schema.RequestPermissionRequest, schema.RequestPermissionResponse,
    ),
    CLIENT_METHODS["elicitation_create"]: (
        schema.CreateElicitationRequest, schema.CreateElicitationResponse,
    ),
    CLIENT_METHODS["fs_read_text_file"]: (
        schema.ReadTextFileRequest, schema.ReadTextFileResponse,
    ),
    CLIENT_METHODS["fs_write_text_file"]: (
        schema.WriteTextFileRequest, schema.WriteTextFileResponse,
    ),
}  # fmt: skip


class Checked:
    """Checks each message that is sent or received. `wrong` has the faults."""

    def __init__(self) -> None:
        self.seen, self.wrong = set[str](), list[str]()
        self._methods = dict[tuple[bool, Any], str]()

    def __call__(self, event: StreamEvent) -> None:
        message, ours = event.message, event.direction is StreamDirection.OUTGOING
        method = message.get("method")
        if method is not None:
            self.seen.add(method)
            self._methods[ours, message.get("id")] = method
            self._check(f"{method} {message}", _CHECKED[method][0], message["params"])
        elif "result" in message:
            answered_method = self._methods[not ours, message["id"]]
            self._check(
                f"the result of {answered_method}",
                _CHECKED[answered_method][1],
                message["result"],
            )

    def _check(self, label: str, kind: Any, value: object) -> None:
        try:
            validate_python: object = TypeAdapter(kind).validate_python(value)
        except ValueError as error:
            self.wrong.append(f"{label}: {error}")
            return
        unknown = _unknown(value, validate_python)
        if unknown:
            self.wrong.append(f"{label}: unknown {unknown}")


def _unknown(value: object, member: object) -> list[str]:
    """Return the fields of an object that its model does not have."""
    if isinstance(member, list) and isinstance(value, list):
        return [n for v, m in zip(value, member, strict=True) for n in _unknown(v, m)]
    if not isinstance(member, BaseModel) or not isinstance(value, dict):
        return []
    member = getattr(member, "root", member)
    fields = {f.alias or name: name for name, f in type(member).model_fields.items()}
    own = [name for name in value if name not in fields]
    below = [
        text
        for name, each in value.items()
        if name in fields
        for text in _unknown(each, getattr(member, fields[name]))
    ]
    return own + below


class Editor:
    """An editor. `said` returns the person's answer: the id of an option, or "" to close the question.

    `unsaved` are texts that are not on the disk, by path. The editor saves the texts that it gets,
    unless it only `keeps` them. If `broken` is set, it answers requests about files and forms with
    this error.
    """

    def __init__(self, said: Said | None = None) -> None:
        self._said = said or (lambda call, options: "once")
        self.updates = list[tuple[str, Any]]()
        self.asked = list[tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]]()
        self.forms = list[Any]()
        self.filled: Mapping[str, object] | None = None
        self.unsaved, self.keeps, self.broken = dict[str, str](), False, ""
        self.opened, self.written = list[str](), list[tuple[str, str, str]]()
        self._news = anyio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self._news.set()
        self._news = anyio.Event()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self._news.set()
        self._news = anyio.Event()
        chosen = self._said(tool_call, options)
        if chosen == "…":
            await anyio.sleep_forever()
        outcome = (
            schema.AllowedOutcome(outcome="selected", option_id=chosen)
            if chosen
            else schema.DeniedOutcome(outcome="cancelled")
        )
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        if self.broken:
            raise acp.RequestError(-32603, self.broken)
        self.forms.append(mode)
        if self.filled is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=dict(self.filled))

    async def read_text_file(
        self, session_id: str, path: str, **_: Any
    ) -> schema.ReadTextFileResponse:
        if self.broken:
            raise acp.RequestError(-32603, self.broken)
        self.opened.append(path)
        text = self.unsaved.get(path)
        return schema.ReadTextFileResponse(
            content=Path(path).read_text() if text is None else text
        )

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        if self.broken:
            raise acp.RequestError(-32603, self.broken)
        self.written.append((session_id, path, content))
        if self.keeps:
            self.unsaved[path] = content
        else:
            self.unsaved.pop(path, None)
            Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    def updates_of(self, *kinds: str) -> list[Any]:
        return [update for _, update in self.updates if update.session_update in kinds]

    @property
    def answer(self) -> str:
        return "".join(item.content.text for item in self.updates_of("agent_message_chunk"))

    @property
    def output_text(self) -> str:
        """The output of running calls that the editor has got so far."""
        parts = [
            part
            for item in self.updates_of("tool_call_update")
            for part in item.content or []
        ]
        return "".join(part.content.text for part in parts if part.type == "content")

    async def wait_until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(LONG):
            while not condition():
                await self._news.wait()


class Connected:
    """The connection, and the messages that passed over it."""

    def __init__(
        self, agent: ClientSideConnection, editor: Editor, process: Any, workspace: Path
    ) -> None:
        self.agent, self.editor, self.process, self.work = agent, editor, process, workspace
        self.begun: Any = None

    async def new(self, **options: Any) -> str:
        session = await self.agent.new_session(
            cwd=str(self.work), mcp_servers=[], **options
        )
        return session.session_id

    async def prompt(self, session: str, text: str, *more: Any) -> schema.PromptResponse:
        blocks = [acp.text_block(text), *more]
        with anyio.fail_after(LONG):
            return await self.agent.prompt(session_id=session, prompt=blocks)


@asynccontextmanager
async def connect_editor(
    workspace: Path,
    *lines: Document,
    said: Said | None = None,
    elicits: bool = False,
    files: bool = False,
    draws: bool = False,
    options: Sequence[str] = (),
    code: int = 0,
) -> AsyncGenerator[Connected]:
    """Run `refold acp` with these responses of the model. End it, and check all messages."""
    editor, checked = Editor(said), Checked()
    program, *arguments = command(
        "acp", "--script", script(workspace.parent, *lines), *options
    )
    async with acp.spawn_agent_process(
        editor, program, *arguments, env=dict(os.environ), cwd=workspace,
        transport_kwargs={"stderr": None, "shutdown_timeout": 10.0}, observers=[checked],
        use_unstable_protocol=True,
    ) as (agent, process):  # fmt: skip
        connected = Connected(agent, editor, process, workspace)
        form = schema.ElicitationFormCapabilities()
        capabilities = schema.ClientCapabilities(
            elicitation=schema.ElicitationCapabilities(form=form) if elicits else None,
            fs=schema.FileSystemCapabilities(read_text_file=files, write_text_file=files),
            field_meta={"terminal_output": True} if draws else None,
        )
        with anyio.fail_after(LONG):
            connected.begun = await agent.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=capabilities,
                client_info=schema.Implementation(name="zed", title="Zed", version="1"),
            )
        yield connected
    assert checked.wrong == []
    assert process.returncode == code
