"""`refold agents doctor NAME`: is its model there, and which of its tools would ask.

`app` checks the model, `permissions` decides about calls. Nothing is asked of a model.
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

_A_FILE, _A_COMMAND, _READS = "any-file", "any-command", "ls"
_VERDICT_LABELS: Mapping[Verdict, str] = {
    "allow": "runs without asking",
    "ask": "asks",
    "deny": "refused",
}


def run(args: Namespace) -> int:
    """Return 1 if the agent could not work."""
    from refold.agents.profile import tools_of
    from refold.cli.launch import app_of
    from refold.errors import BadInput
    from refold.journal.state.fold import View

    words = ["--agent", args.name, *(("--agents", args.agents) if args.agents else ())]
    start = session_parser().parse_args(words)
    app = app_of(start, attended=True)
    profile = app.agents.find(args.name, "main")
    model, fault = "", ""
    try:
        model = app.models.check(start.model or app.models.full_name(app.model_of(View())))
    except BadInput as error:
        fault = str(error)
    tools = tools_of(profile, app.tools)
    rules = (*app.workspace.rules, *profile.rules)
    mode = profile.mode or app.mode
    write(f"agent  {profile.name}  ({escape_to_one_line(profile.where) or 'built in'})\n")
    write(
        f"model  {escape_to_one_line(model)}  ok\n"
        if not fault
        else f"model  missing: {escape_to_one_line(fault)}\n"
    )
    verdicts: list[tuple[Tool, Verdict]] = [
        (t, _sample_verdict(t, app, rules, mode)) for t in (*tools.active, *tools.deferred)
    ]
    for verdict in _VERDICT_LABELS:
        names = [t.name for t, result in verdicts if result == verdict]
        write(f"{_VERDICT_LABELS[verdict]:19}  {', '.join(names) or '-'}\n")
    write(_limits(verdicts, app, rules, mode))
    app.workspace.close()
    return 1 if fault else 0


def _sample_verdict(
    tool: "Tool",
    app: "App",
    rules: Sequence["Rule"],
    mode: "Mode",
    command: str = _A_COMMAND,
) -> Verdict:
    """Return the verdict on a sample call: on a file of the workspace, or a command that no
    rule names.
    """
    from refold.engine.authorize import describe_access
    from refold.permissions.decide import decide
    from refold.permissions.facts import Access

    facts = app.facts()
    try:
        access = describe_access(tool, _sample(tool, command), facts)
    except ToolFailed:  # it needs more than a sample
        access = Access(tool.name, tool.effect)
    return decide(access, mode, rules, facts).verdict


def _sample(tool: "Tool", command: str) -> Mapping[str, object]:
    """Return sample arguments for a call."""
    schema: dict[str, Any] = msgspec.json.decode(tool.spec.parameters)
    kinds = {"integer": 1, "number": 1, "boolean": True}
    values: dict[str, object] = {
        name: about["enum"][0] if "enum" in about else kinds.get(about.get("type"), _A_FILE)
        for name, about in schema["properties"].items()
        if name in schema["required"]
    }
    return values | ({"command": command} if "command" in values else {})


def _limits(
    verdicts: Sequence[tuple["Tool", Verdict]],
    app: "App",
    rules: Sequence["Rule"],
    mode: "Mode",
) -> str:
    """Describe limits that the lists do not show per call."""
    from refold.permissions.rules import COMMAND_TOOLS

    asking = [t for t, v in verdicts if v == "ask" and t.name in COMMAND_TOOLS]
    reading = [t for t in asking if _sample_verdict(t, app, rules, mode, _READS) == "allow"]
    names = ", ".join(tool.name for tool in reading)
    limits = "Protected files ask in every mode"
    if mode != "bypass":
        limits += ", and files outside the workspace ask"
    return (
        f"{limits}; {names}: a command that only reads does not.\n"
        if names
        else f"{limits}.\n"
    )
