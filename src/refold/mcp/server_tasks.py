"""Makes calls that a server answers with a task, and polls the task until it has a result.

There are two kinds of tasks. With 2025-11-25, a tool declares that it must be called as a task,
and `tasks/result` waits for the end. With 2026-07-28, any call may become a task (an
extension), and `tasks/get` returns the result when it exists. Progress of a task is passed on
like that of a call; when a call is cancelled, its task is cancelled. `connection` makes the
calls.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

TASK_REQUIRED = "required"  # the `taskSupport` of a tool that can only be called as a task
_MIN_SECONDS, _MAX_SECONDS = 0.2, 10.0  # between two polls of a task
_CANCEL_SECONDS = 2.0  # for the server's answer to a cancellation
_MAX_STATUS_CHARS = 500

# The progress function of the running call.
_TELL_PROGRESS = ContextVar[ProgressFnT | None]("tell", default=None)


class TasksExtension(ClientExtension):
    """The extension of the SDK's client for calls that become tasks with 2026-07-28."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=_CreatedTask, resolve=_poll_result),)


async def call_tool(
    client: Client,
    tool: str,
    arguments: dict[str, Any],
    tell: ProgressFnT,
    *,
    as_task: bool,
) -> types.CallToolResult:
    """Call a tool, and return its result, even if the call becomes a task. Raises `MCPError`.

    `tell` gets the progress. `as_task` means that the tool requires a task of 2025-11-25.
    """
    if as_task and client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return await _call_as_task(client, tool, arguments, tell)
    token = _TELL_PROGRESS.set(tell)
    try:
        return await client.call_tool(tool, arguments, progress_callback=tell)
    finally:
        _TELL_PROGRESS.reset(token)


async def _call_as_task(
    client: Client, tool: str, arguments: dict[str, Any], tell: ProgressFnT
) -> types.CallToolResult:
    """Call a tool as a task of the protocol 2025-11-25, and return its result."""
    session = client.session
    params = types.CallToolRequestParams(
        name=tool, arguments=arguments, task=types.TaskMetadata()
    )
    created = await session.send_request(
        types.CallToolRequest(params=params), types.CreateTaskResult, progress_callback=tell
    )
    task = created.task
    result = types.CallToolResult(content=[])
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_follow, session, task, tell)
            payload = types.GetTaskPayloadRequestParams(task_id=task.task_id)
            result = await session.send_request(
                types.GetTaskPayloadRequest(params=payload), types.CallToolResult
            )
            group.cancel_scope.cancel()
        return result
    except anyio.get_cancelled_exc_class():
        await _cancel(session, task.task_id)
        raise


class _CreatedTask(types.Result):
    """The answer to a call that has become a task: the state of the task."""

    result_type: Literal["task"]
    task_id: str
    status: str = "working"
    status_message: str | None = None
    poll_interval_ms: int | None = None


class _TaskState(_CreatedTask):
    """The answer to `tasks/get`. `input_requests` maps keys to questions for the user."""

    result_type: Any = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(types.Request[_TaskParams, str]):
    name_param = "taskId"

    method: str
    params: _TaskParams


async def _poll_result(
    created: _CreatedTask, context: ClaimContext
) -> types.CallToolResult:
    """Poll a task of 2026-07-28 until it ends, and return its result."""
    session, task_id = context.session, created.task_id
    message = created.status_message
    answered_ids = set[str]()
    await _report(message, before="")
    try:
        while True:
            await anyio.sleep(_poll_seconds(created.poll_interval_ms))
            request = _request("tasks/get", task_id)
            state = await session.send_request(request, _TaskState)
            await _report(state.status_message, message)
            message = state.status_message
            match state.status:
                case "completed":
                    return types.CallToolResult.model_validate(
                        state.result or {}, by_name=False
                    )
                case "failed" | "cancelled":
                    raise _failure(state)
                case "input_required":
                    await _answer(
                        session, task_id, state.input_requests or {}, answered_ids
                    )
                case _:  # the task still runs
                    pass
    except anyio.get_cancelled_exc_class():
        await _cancel(session, task_id)
        raise


async def _answer(
    session: ClientSession,
    task_id: str,
    requests: Mapping[str, Any],
    answered_ids: set[str],
) -> None:
    """Ask the user a task's questions, and send the answers to the server.

    Skip questions whose key is in `answered_ids`, and add the other keys to it.
    """
    responses = dict[str, Any]()
    for key, raw in requests.items():
        if key in answered_ids:
            continue
        answered_ids.add(key)
        request = _INPUT_REQUEST.validate_python(raw, by_name=False)
        context = ClientRequestContext(session=session, request_id=key, meta=None)
        response = await session.dispatch_input_request(context, request)
        if isinstance(response, types.ErrorData):
            raise MCPError(response.code, response.message, response.data)
        responses[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)
    if responses:
        request = _request("tasks/update", task_id, responses)
        await session.send_request(request, types.EmptyResult)


async def _follow(session: ClientSession, task: types.Task, tell: ProgressFnT) -> None:
    """Report each new status message of a task of 2025-11-25 as progress, until cancelled."""
    token = _TELL_PROGRESS.set(tell)
    try:
        message = ""
        while True:
            await anyio.sleep(_poll_seconds(task.poll_interval))
            params = types.GetTaskRequestParams(task_id=task.task_id)
            request = types.GetTaskRequest(params=params)
            state = await session.send_request(request, types.GetTaskResult)
            await _report(state.status_message, message)
            message = state.status_message or ""
    except MCPError:
        return  # the result has the error
    finally:
        _TELL_PROGRESS.reset(token)


async def _report(message: str | None, before: str | None) -> None:
    """Report a task's status message as progress, unless it is the same as `before`."""
    tell = _TELL_PROGRESS.get()
    if tell is not None and message and message != before:
        await tell(0, None, message[:_MAX_STATUS_CHARS])


async def _cancel(session: ClientSession, task_id: str) -> None:
    """Ask the server to cancel a task, even while the calling coroutine is cancelled."""
    with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
        try:
            await session.send_request(_request("tasks/cancel", task_id), types.EmptyResult)
        except MCPError:
            return  # it has ended in the meantime


def _request(
    method: str, task_id: str, responses: dict[str, Any] | None = None
) -> _TaskRequest:
    """Return a request about a task, with the user's responses to its questions, if any."""
    params = _TaskParams(task_id=task_id, input_responses=responses)
    return _TaskRequest(method=method, params=params)


def _failure(state: _TaskState) -> MCPError:
    """Return the error of a failed task, with the reason that the server names, if any."""
    error = state.error or {}
    message = error.get("message") or state.status_message or f"the task is {state.status}"
    return MCPError(types.INTERNAL_ERROR, str(message)[:_MAX_STATUS_CHARS])


def _poll_seconds(interval_ms: int | None) -> float:
    """Return the interval between two polls that the server asks for, within bounds.

    Return 1 second if the server asks for no interval.
    """
    return min(_MAX_SECONDS, max(_MIN_SECONDS, (interval_ms or 1_000) / 1_000))


_INPUT_REQUEST = TypeAdapter[Any](types.InputRequest)
