"""`refold agents doctor NAME`: is its model there, and which of its tools would ask.

`app` checks the model, `permissions` decides about calls. Nothing is asked of a model.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from refold.cli.flags import session_parser
from refold.headless.streams import write
from refold.values.modes import Verdict
from refold.views.escape import on_one_line

if TYPE_CHECKING:
    from refold.app.app import App
    from refold.permissions.rules import Rule
    from refold.tools.contract import Tool

_A_FILE, _A_COMMAND = "any-file", "any-command"
_LABELS: Mapping[Verdict, str] = {
    "allow": "runs without asking",
    "ask": "asks",
    "deny": "refused",
}


def run(found: Namespace) -> int:
    """Exit code 1 if the agent could not work."""
    from refold.agents.profile import tools_of
    from refold.cli.launch import app_of
    from refold.errors import BadInput
    from refold.journal.state.fold import View

    words = ["--agent", found.name, *(("--agents", found.agents) if found.agents else ())]
    start = session_parser().parse_args(words)
    app = app_of(start, attended=True)
    profile = app.agents.find(found.name, "main")
    model, fault = "", ""
    try:
        model = app.models.check(start.model or app.models.full(app.model_of(View())))
    except BadInput as error:
        fault = str(error)
    tools = tools_of(profile, app.tools).active
    rules = (*app.workspace.rules, *profile.rules)
    write(f"agent  {profile.name}  ({on_one_line(profile.where) or 'built in'})\n")
    write(
        f"model  {on_one_line(model)}  ok\n"
        if not fault
        else f"model  missing: {on_one_line(fault)}\n"
    )
    for verdict in _LABELS:
        names = [t.spec.name for t in tools if _verdict(t, app, rules) == verdict]
        write(f"{_LABELS[verdict]:19}  {', '.join(names) or '-'}\n")
    app.workspace.close()
    return 1 if fault else 0


def _verdict(tool: "Tool", app: "App", rules: Sequence["Rule"]) -> Verdict:
    """For a file of the workspace, or a command that no rule names."""
    from refold.permissions.decide import decide
    from refold.permissions.facts import Access, Target
    from refold.permissions.rules import EDITS, LOOKS

    name, facts = tool.spec.name, app.facts()
    path = f"{facts.roots[0]}/{_A_FILE}"
    files = (Target(_A_FILE, path),) if name in EDITS | LOOKS else ()
    subject = _A_COMMAND if name == "bash" else ""
    access = Access(name, tool.effect, subject, files)
    return decide(access, app.mode, rules, facts).verdict
