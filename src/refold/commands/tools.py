"""/tools: list the tools of this session, and whether their calls run without asking.

`agents.profile` decides which tools an agent has, and `permissions` decides what runs without
asking.
"""

from collections.abc import Iterable, Sequence

from refold.client.permissions import Permissions
from refold.client.session import Session
from refold.client.types import Tool
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.errors import BadInput
from refold.values.tools import Effect
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import Line, Style, line
from refold.views.wrap import cells

_PLANNING_STATE = "not in plan mode"
_ASKS_STATE = "asks"
_FREE_STATE = "runs without asking"


def choices(session: Session) -> Iterable[CompletionChoice]:
    return (CompletionChoice(tool.name) for tool in session.tools)


async def run(context: CommandContext, arguments: str) -> None:
    """List all tools, or show the named tool with its description."""
    tools = context.session.reports.next_tools()
    permissions = context.session.permissions
    if arguments:
        all_tools = (*tools.active, *tools.deferred)
        match = next((tool for tool in all_tools if tool.name == arguments), None)
        if match is None:
            raise BadInput(f"there is no tool {arguments!r} here: /tools lists them")
        context.show(_row(match, len(arguments), permissions))
        context.show(line(visible(match.description.strip())))
        return
    for title, tools_of_kind in (
        ("Tools with their schemas in the context:", tools.active),
        ("Tools that the model loads when it needs them:", tools.deferred),
    ):
        if tools_of_kind:
            context.show(line(title, "strong"))
        width = max(
            (cells(escape_to_one_line(tool.name)) for tool in tools_of_kind), default=0
        )
        for tool in tools_of_kind:
            context.show(_row(tool, width, permissions))
            context.show(*_rules_for(tool, permissions))


def _row(tool: Tool, column_width: int, permissions: Permissions) -> Line:
    """Return the line for a tool: its name, its effect, and whether it asks."""
    name = escape_to_one_line(tool.name)
    verdict = describe_outcome(tool, permissions)
    styles: dict[str, Style] = {_FREE_STATE: "good", _PLANNING_STATE: "bad"}
    return (
        ("accent", f"  {name}{'':{column_width - cells(name)}}"),
        ("dim", f"  {tool.effect.value:<6}  "),
        (styles.get(verdict, "warn"), verdict),
    )


def _rules_for(tool: Tool, permissions: Permissions) -> Sequence[Line]:
    """Return a line for each permission rule that names this tool."""
    return [
        line(f"      {rule.verdict} {escape_to_one_line(str(rule))}", "dim")
        for rule in permissions.rules_about(tool)
    ]


def describe_outcome(tool: Tool, permissions: Permissions) -> str:
    """Return a text about what happens to a call of `tool` that no rule matches.

    For a tool that runs commands, the outcome depends on the call, because commands that only
    read are allowed in more modes.
    """
    mode = permissions.mode
    runs_commands = permissions.runs_commands(tool)
    if tool.effect in (Effect.LOOK, Effect.SELF) or mode == "bypass":
        return _FREE_STATE
    if tool.effect is Effect.ASK:
        return "asks you a question"
    if mode == "plan" and tool.effect in (Effect.CHANGE, Effect.RUN):
        return "read-only commands" if runs_commands else _PLANNING_STATE
    if mode == "rules-only":
        return "needs an allow rule"
    if tool.effect is Effect.CHANGE and mode in ("accept-edits", "sandbox"):
        return "runs without asking in the workspace"
    return "asks, unless it is read-only" if runs_commands else _ASKS_STATE
