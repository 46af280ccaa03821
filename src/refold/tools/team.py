"""The tools of a team: start teammates, and exchange mail with them.

The setting `subagents.teams` enables teams. The leader has all of these tools except `idle`; a
teammate has those for mail and `idle`. Mail is delivered automatically before the next step,
and the port `Team` sends it. `tools.task` starts a subagent that reports once, and `tools.todo`
shares tasks.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta, Struct

from refold.tools.contract import Reply, tool
from refold.values.control import Final
from refold.values.display import Note
from refold.values.tools import Effect

LEAD_NAME = "lead"
_EMPTY_REPORT = "Nothing to report."
MailKind: TypeAlias = Literal["message", "plan", "review", "shutdown"]


class TeammateRequest(Struct, frozen=True):
    """What a new teammate needs to start."""

    name: str
    role: str
    prompt: str
    agent: str


class Team(Protocol):
    """The team of a session. Each method raises `ToolFailed` with the reason.

    `call` is the id of the call: if the call is repeated after a crash, it has no effect again.
    """

    async def spawn(self, call: str, request: TeammateRequest) -> str:
        """Start a teammate, and return the name of its session."""
        ...

    async def send(self, call: str, to: Sequence[str], text: str, kind: MailKind) -> None:
        """Send mail to the members `to`."""
        ...

    def others(self) -> Sequence[str]:
        """Return the names of the other members that can get mail."""
        ...

    def inbox(self) -> Sequence[str]:
        """Return the mail that this member has received, oldest first, as texts."""
        ...

    def describe(self) -> Sequence[str]:
        """Return a line for each teammate: its name, its state and its task."""
        ...


@tool(Effect.SELF, subject="name")
async def spawn_teammate(
    name: Annotated[str, Meta(description="a short name, lower case")],
    role: Annotated[str, Meta(description="what it is responsible for, in one line")],
    prompt: Annotated[str, Meta(description="its first work, with all that it must know")],
    agent: str = "code",
    *,
    team: Team,
    call: str,
) -> Reply:
    """Start a teammate. It works beside you, takes tasks from the board, and exchanges mail with you and the others until there is nothing left to do. Its report comes as a message."""
    child = await team.spawn(call, TeammateRequest(name, role, prompt, agent))
    return Reply(f"{name} ({child}) works now.", (Note(f"{name} works as {child}"),))


@tool(Effect.SELF, subject="to")
async def send_message(
    to: Annotated[str, Meta(description="a teammate, or lead")],
    content: str,
    kind: Annotated[
        Literal["message", "plan"], Meta(description="plan: lead reviews it")
    ] = "message",
    *,
    team: Team,
    call: str,
) -> Reply:
    """Send mail to one member of the team."""
    await team.send(call, [to], content, kind)
    return Reply(f"Sent to {to}.", (Note(f"to {to}: {' '.join(content.split())[:80]}"),))


@tool(Effect.SELF, subject="content")
async def broadcast(content: str, *, team: Team, call: str) -> Reply:
    """Send mail to all other members of the team."""
    others = team.others()
    await team.send(call, others, content, "message")
    names = ", ".join(others) or "no one: there are no others"
    return Reply(f"Sent to {names}.", (Note(f"to {names}"),))


@tool(Effect.SELF)
async def read_inbox(*, team: Team) -> Reply:
    """Read the mail you have got again. New mail comes to you by itself."""
    mail = team.inbox()
    return Reply("\n\n".join(mail) or "There is no mail.", (Note(f"{len(mail)} mails"),))


@tool(Effect.SELF)
async def list_teammates(*, team: Team) -> Reply:
    """List the members of the team, and what each is doing."""
    text = "\n".join(team.describe()) or "There are no teammates."
    return Reply(text, (Note(text),))


@tool(Effect.SELF, subject="name")
async def shutdown_teammate(name: str, reason: str = "", *, team: Team, call: str) -> Reply:
    """Ask a teammate to end when it has finished what it is doing. Its report tells you."""
    await team.send(call, [name], reason, "shutdown")
    return Reply(f"{name} was asked to end.", (Note(f"{name} was asked to end"),))


@tool(Effect.SELF, subject="name")
async def review_plan(
    name: str, approve: bool, feedback: str = "", *, team: Team, call: str
) -> Reply:
    """Answer the plan that a teammate has sent."""
    verdict = "approved" if approve else "not approved: revise it"
    text = f"Your plan is {verdict}.\n{feedback}".rstrip()
    await team.send(call, [name], text, "review")
    return Reply(f"{name} is told: {verdict}.", (Note(f"the plan of {name}: {verdict}"),))


@tool(Effect.SELF)
async def idle(
    report: Annotated[
        str, Meta(description="what you have done, in a few words, if anything")
    ] = "",
) -> Reply:
    """End your turn: you have nothing to do until mail or a free task comes, which begins your next turn."""
    return Reply(
        "You are idle.", (Note("idle"),), control=Final(report.strip() or _EMPTY_REPORT)
    )


TEAM_TOOLS = (
    spawn_teammate, send_message, broadcast, read_inbox, list_teammates, shutdown_teammate,
    review_plan, idle,
)  # fmt: skip
