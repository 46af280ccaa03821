"""The tools that other agents see, and how a question reaches the user of such an agent.

A question is sent by elicitation of MCP: the calling program shows it to its user, and its
agent cannot answer it. Since the protocol of 2026-07-28 the result of a call contains the
question, and a repeated call contains the answer. Before that, the question is a request of
its own. `delegated_tasks` runs the tasks.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from refold._version import __version__
from refold.client.questions import Question
from refold.errors import RefoldError
from refold.task_server.delegated_tasks import Answer, DelegatedTask, DelegatedTasks, key_of
from refold.values.display import Form, FormAnswer
from refold.values.forms import as_schema
from refold.views.escape import escape_to_one_line, visible

_MAX_WAIT_SECONDS = 600.0  # of one call
_SERVER_INSTRUCTIONS = (
    "Gives tasks to refold, an agent that works on files and runs commands in a sandbox. Start a "
    "task, follow it until it has ended, and read the files that it changed."
)
_CLOSED_REASON = "the user closed the question without an answer"


class TaskState(BaseModel):
    """How a task stands. `session` is where it is kept. `steps` are calls that began since it was asked last."""

    task_id: str
    session: str = ""
    state: Literal["working", "asking", "ended"]
    steps: list[str] = []
    questions: list[str] = []
    outcome: str = ""
    reason: str = ""
    answer: str = ""
    files: dict[str, str] = {}
    denied: list[str] = []
    notices: list[str] = []


def server(tasks: DelegatedTasks) -> MCPServer:
    """Return an MCP server whose tools start and follow these tasks."""
    mcp_server = MCPServer(
        "refold",
        title="refold",
        version=__version__,
        instructions=_SERVER_INSTRUCTIONS,
        log_level="ERROR",
    )
    tools = TaskTools(tasks)
    for method in (
        tools.start_task,
        tools.follow_task,
        tools.send_message,
        tools.stop_task,
        tools.read_changed_file,
    ):
        mcp_server.add_tool(method)
    return mcp_server


class TaskTools:
    """Each method is a tool: its docstring is what the other agent reads."""

    def __init__(self, tasks: DelegatedTasks) -> None:
        self._tasks = tasks

    async def start_task(self, task: str, ctx: Context, workspace: str = "") -> TaskState:
        """Start a task. `task` is all that refold learns of it. `workspace` is the directory to work in, relative to where the server was started. Returns at once: follow_task waits."""
        with _translate_errors():
            new_task = await self._tasks.start(task, workspace, attended=_can_ask(ctx))
            state = state_of(new_task)
            state.notices = list(await new_task.notices())
        return state

    async def follow_task(
        self, task_id: str, ctx: Context, seconds: float = 60
    ) -> TaskState | types.InputRequiredResult:
        """Wait until the task has ended, `seconds` at most, and say how it stands. Questions of the task are put to the user meanwhile."""
        with _translate_errors():
            task = self._tasks.find(task_id)
        _take_answers(task, ctx)
        with anyio.move_on_after(min(max(seconds, 0), _MAX_WAIT_SECONDS)):
            while task.state != "ended":
                if task.state == "asking" and _can_ask(ctx):
                    question = task.questions[0]
                    if not ctx.request_context.session.can_send_request:
                        return _input_request(task)
                    answer = await _ask(question, ctx)
                    task.answer(key_of(question), answer)
                    continue
                await task.wait_for_change()
                steps = task.steps
                await ctx.report_progress(len(steps), message=steps[-1] if steps else None)
        return state_of(task)

    async def send_message(self, task_id: str, text: str) -> TaskState:
        """Tell a task something: while it works, or, when it has ended, what to do next."""
        with _translate_errors():
            return state_of(await self._tasks.say(task_id, text))

    async def stop_task(self, task_id: str) -> TaskState:
        """Stop a task at once. Its files stay as they are."""
        with _translate_errors():
            task = self._tasks.find(task_id)
            await task.session.interrupt(reason="stopped by the agent that gave the task")
            while task.state != "ended":
                await task.wait_for_change()
            return state_of(task)

    async def read_changed_file(self, task_id: str, path: str) -> str:
        """Read a file that the task changed, by its name in `files`."""
        with _translate_errors():
            task = self._tasks.find(task_id)
            return await to_thread.run_sync(task.read, path)


def state_of(task: DelegatedTask) -> TaskState:
    """Return the state of a task, as its tools return it."""
    state = TaskState(
        task_id=task.id, session=task.session.id, state=task.state, steps=list(task.new_steps()),
        questions=[_describe_question(item) for item in task.questions], files=dict(task.files),
    )  # fmt: skip
    result = task.result
    if task.failure:
        state.outcome = "failed"
        state.reason = task.failure
    elif result is not None:
        state.outcome = result.outcome
        state.reason = result.reason
        state.answer = task.answer_text
        state.denied = [f"{item.tool}: {item.reason}" for item in result.denials]
    return state


def _can_ask(ctx: Context) -> bool:
    capabilities = ctx.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


async def _ask(question: Question, ctx: Context) -> Answer:
    """Ask the user in a separate request to the calling program, and return the answer."""
    try:
        result = await ctx.request_context.session.elicit_form(
            _describe_question(question),
            _schema(question),
            related_request_id=ctx.request_id,
        )
    except MCPError as error:
        return f"the user could not be asked: {error}"
    return _answer(question, result)


def _input_request(task: DelegatedTask) -> types.InputRequiredResult:
    """Return the questions of the task as a form for the user of the calling program."""
    return types.InputRequiredResult(
        input_requests={
            key_of(question): types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message=_describe_question(question), requested_schema=_schema(question)
                )
            )
            for question in task.questions
        }
    )


def _take_answers(task: DelegatedTask, ctx: Context) -> None:
    """Pass the answers in the request on to the task; other questions stay open."""
    responses: Mapping[str, object] = ctx.input_responses or {}
    for question in task.questions:
        result = responses.get(key_of(question))
        if isinstance(result, types.ElicitResult):
            task.answer(key_of(question), _answer(question, result))


def _describe_question(question: Question) -> str:
    """Return the text that the user reads: questions of the model, or one about a call."""
    if question.asks:
        return "\n".join(visible(part.question) for part in question.asks)
    asker = f"{question.who}: " if question.who else ""
    about = escape_to_one_line(json.dumps(question.arguments, ensure_ascii=False))
    reason = escape_to_one_line(question.reason)
    return f"{asker}May refold call {question.tool} with {about}? {reason}"


def _schema(question: Question) -> dict[str, Any]:
    """Return the form of a question: a field for each part, or "allow" for a call."""
    if not question.asks:
        allow = {"type": "boolean", "title": "Allow this call"}
        return {"type": "object", "properties": {"allow": allow}, "required": ["allow"]}
    form = question.asks[0].form
    if isinstance(form, Form):  # the form of an MCP server
        return as_schema(form)
    fields = dict[str, Any]()
    for number, part in enumerate(question.asks, 1):
        fields[f"answer{number}"] = {"type": "string", "title": part.question}
        if part.options and not part.many:
            fields[f"answer{number}"]["enum"] = [option.label for option in part.options]
    return {"type": "object", "properties": fields, "required": list(fields)}


def _answer(question: Question, result: types.ElicitResult) -> Answer:
    """Return the answers to the model's questions as a list, or whether a call is allowed.

    If the user gave no answer, return a sentence that says so.
    """
    content = result.content or {}
    # The form of an MCP server: the server gets the answer, also if the user declined.
    if question.asks and isinstance(question.asks[0].form, Form):
        values = {name: value for name, value in content.items() if value is not None}
        return [FormAnswer(result.action, values).encode()]
    if result.action != "accept":
        return _CLOSED_REASON
    if question.asks:
        names = [f"answer{number}" for number, _ in enumerate(question.asks, 1)]
        return [str(content.get(name, "")) for name in names]
    return content.get("allow") is True


@contextmanager
def _translate_errors() -> Generator[None]:
    """Raise our errors as errors that the other agent reads."""
    try:
        yield
    except RefoldError as error:
        raise ToolError(str(error)) from error
