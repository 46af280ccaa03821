"""`refold agents doctor NAME`: checks an agent without calling its model.

The command checks whether the model is available, and lists which tools would run, ask or be
denied. `app` checks the model, and `permissions` decides about calls.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from refold.cli.flags import session_parser
from refold.errors import ToolFailed
from refold.headless.streams import write
from refold.values.modes import Mode, Verdict
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    from refold.app.app import App
    from refold.permissions.rules import Rule
    from refold.tools.contract import Tool

_SAMPLE_FILE = "any-file"
_SAMPLE_COMMAND = "any-command"
_READING_COMMAND = "ls"
_VERDICT_LABELS: Mapping[Verdict, str] = {
    "allow": "runs without asking",
    "ask": "asks",
    "deny": "refused",
}


def run(args: Namespace) -> int:
    """Check an agent, and print the result. Return exit code 1 if the agent cannot work."""
    from refold.agents.profile import tools_of
    from refold.cli.launch import app_of
    from refold.errors import BadInput
    from refold.journal.state.fold import View

    arguments = ["--agent", args.name]
    if args.agents:
        arguments += ["--agents", args.agents]
    start = session_parser().parse_args(arguments)
    app = app_of(start, attended=True)
    profile = app.agents.find(args.name, "main")
    model = fault = ""
    try:
        name = start.model or app.models.full_name(app.model_of(View()))
        model = app.models.check(name)
    except BadInput as error:
        fault = str(error)
    tools = tools_of(profile, app.tools)
    rules = (*app.workspace.rules, *profile.rules)
    mode = profile.mode or app.mode
    write(f"agent  {profile.name}  ({escape_to_one_line(profile.where) or 'built in'})\n")
    if fault:
        write(f"model  missing: {escape_to_one_line(fault)}\n")
    else:
        write(f"model  {escape_to_one_line(model)}  ok\n")
    verdicts: list[tuple[Tool, Verdict]] = [
        (tool, _sample_verdict(tool, app, rules, mode))
        for tool in (*tools.active, *tools.deferred)
    ]
    for verdict, label in _VERDICT_LABELS.items():
        names = [tool.name for tool, result in verdicts if result == verdict]
        write(f"{label:19}  {', '.join(names) or '-'}\n")
    write(_exceptions_text(verdicts, app, rules, mode))
    app.workspace.close()
    return 1 if fault else 0


def _sample_verdict(
    tool: "Tool",
    app: "App",
    rules: Sequence["Rule"],
    mode: "Mode",
    command: str = _SAMPLE_COMMAND,
) -> Verdict:
    """Return the verdict on a sample call of `tool`: whether it runs, asks or is denied.

    The call uses a file of the workspace, or runs `command`.
    """
    from refold.engine.authorize import describe_access
    from refold.permissions.decide import decide
    from refold.permissions.facts import Access

    facts = app.facts()
    try:
        access = describe_access(tool, _sample_arguments(tool, command), facts)
    except ToolFailed:  # the tool needs more than a sample
        access = Access(tool.name, tool.effect)
    return decide(access, mode, rules, facts).verdict


def _sample_arguments(tool: "Tool", command: str) -> Mapping[str, object]:
    """Return sample arguments for `tool`, with a value for each required parameter."""
    schema: dict[str, Any] = msgspec.json.decode(tool.spec.parameters)
    samples = {"integer": 1, "number": 1, "boolean": True}
    values: dict[str, object] = {}
    for name in schema["required"]:
        about = schema["properties"][name]
        if name == "command":
            values[name] = command
        elif "enum" in about:
            values[name] = about["enum"][0]
        else:
            values[name] = samples.get(about.get("type"), _SAMPLE_FILE)
    return values


def _exceptions_text(
    verdicts: Sequence[tuple["Tool", Verdict]],
    app: "App",
    rules: Sequence["Rule"],
    mode: "Mode",
) -> str:
    """Return a sentence about calls whose verdict differs from that of the sample calls.

    Such calls use protected files or files outside of the workspace, or run read-only commands.
    """
    from refold.permissions.rules import COMMAND_TOOLS

    tools_that_may_read = list[str]()
    for tool, verdict in verdicts:
        if verdict != "ask" or tool.name not in COMMAND_TOOLS:
            continue
        # the sample command asks, but a command that only reads may run without asking
        if _sample_verdict(tool, app, rules, mode, command=_READING_COMMAND) == "allow":
            tools_that_may_read.append(tool.name)
    names = ", ".join(tools_that_may_read)
    text = "Protected files ask in every mode"
    if mode != "bypass":
        text += ", and files outside the workspace ask"
    if names:
        text += f"; {names}: a command that only reads does not"
    return f"{text}.\n"
