"""The tools `task` and `schedule`: give work to another session, now or later.

The port of `task` finds the agent, and opens, limits and stops its session. The port of
`schedule` stores the work with the rights that the session has when it calls the tool;
`cli.scheduled_run` runs it. A call of `schedule` needs approval unless a rule allows it, and
plan mode refuses it, because its effect is that something runs.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.tools.contract import Reply, Tool, tool
from refold.values.display import Note
from refold.values.tools import TASK, Effect

TOOL_NAME = TASK
_MAX_PROMPT_CHARS = 60  # shown instead of a title


class TaskRequest(Struct, frozen=True):
    """A task for a subagent. `level` selects its model; "" means that of the agent."""

    agent: str
    prompt: str
    title: str = ""
    level: Literal["", "small", "main", "big"] = ""
    background: bool = False  # the parent does not wait, and gets the report as a message
    worktree: bool = False  # the child gets a git working tree of its own


class Report(Struct, frozen=True):
    """The result of a subagent, or a notice that one has started in the background."""

    child: str
    status: Literal["runs", "done", "partial", "failed"]
    text: str = ""
    reason: str = ""
    branch: str = ""  # the branch with its changes, if it had a working tree of its own
    directory: str = ""
    as_json: bool = False  # the text is the JSON of a value


class ChildStarter(Protocol):
    async def run(self, call_id: str, request: TaskRequest) -> Report:
        """Run a subagent, and return its report. Raises `ToolFailed`.

        It runs once for each call, even if the call is repeated after a crash.
        """
        ...


class AgentChoice(Struct, frozen=True):
    """An agent that can work on a task."""

    name: str
    description: str


@tool(Effect.SELF, subject="agent")
async def task(  # noqa: PLR0913 - a call has what the model needs to say
    prompt: Annotated[
        str,
        Meta(
            description="All that the agent has to know: it sees nothing of this conversation. Say "
            "what to find out or do, and what to report."
        ),
    ],
    agent: Annotated[str, Meta(description="Which agent works on it.")] = "code",
    title: Annotated[str, Meta(description="Three to six words for the person.")] = "",
    level: Annotated[
        Literal["", "small", "main", "big"],
        Meta(description="Another model: small for simple work, big for what is hard."),
    ] = "",
    background: Annotated[
        bool,
        Meta(description="Continue at once; its report comes to you as a message later."),
    ] = False,
    worktree: Annotated[
        bool,
        Meta(description="Let it change files in a git working tree of its own."),
    ] = False,
    *,
    children: ChildStarter,
    call: str,
) -> Reply:
    """Give a piece of work to another agent, which works on its own and reports once.

    Several calls in one answer work side by side.
    """
    request = TaskRequest(agent, prompt, title, level, background, worktree)
    report = await children.run(call, request)
    if not title:
        title = f"{agent}: {' '.join(prompt.split())[:_MAX_PROMPT_CHARS]}"
    branch = f", on the branch {report.branch}" if report.branch else ""
    return Reply(
        report_text(report), (Note(f"{report.child} {report.status}: {title}{branch}"),)
    )


def report_text(report: Report) -> str:
    """Return the text of a report for the model of the parent."""
    place = (
        f"\nIt changed files in {report.directory}, on the branch {report.branch}."
        if report.branch
        else ""
    )
    why = f": {report.reason}" if report.reason else ""
    if report.status == "runs":
        return f"{report.child} has begun{why}. Its report will come as a message."
    return f"{report.child} is {report.status}{why}.{place}\n\n{report.text}".rstrip()


def task_for(agents: Sequence[AgentChoice]) -> Tool:
    """Return the tool `task` with a list of these agents in its description."""
    listed = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)
    return replace(task, description=f"{task.description}\nThe agents are:\n{listed}")


class Schedules(Protocol):
    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        """Store the work, and return when it will run. Raises `ToolFailed`.

        `when` is the time of a single run; otherwise `every` says when runs are due. `call` is
        the id of the call: if the call is repeated after a crash, nothing is added again.
        """
        ...


@tool(Effect.RUN, subject="prompt")
async def schedule(
    prompt: Annotated[str, Meta(description="the whole task: the run knows nothing else")],
    when: Annotated[
        str, Meta(description="once: 2026-11-26T08:00, 08:00 or tomorrow 08:00")
    ] = "",
    every: Annotated[
        str,
        Meta(description="again and again: 30m, 1d, mon-fri 08:00, or cron's 0 8 * * 1-5"),
    ] = "",
    *,
    schedules: Schedules,
    call: str,
) -> Reply:
    """Schedule work for later in this workspace: a new session runs the prompt, without a person, with the rights of this one. Give either when or every."""
    if bool(when.strip()) == bool(every.strip()):
        raise ToolFailed("Give either when or every. Nothing was done.")
    summary = await schedules.add(call, prompt, when, every)
    return Reply(f"{summary}.", (Note(summary),))
