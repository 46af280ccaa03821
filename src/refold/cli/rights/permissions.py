"""`refold permissions explain|list|test|replay|import`: what may run here, and why.

Nothing is run and, but by `import`, nothing written. How a verdict is come to is
`cli.verdicts`' and `permissions`' business.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

import msgspec

from refold.cli.out import complain, write
from refold.cli.subparsers import Subparsers
from refold.errors import BadInput
from refold.values.rights import MODES
from refold.views.escape import on_one_line

if TYPE_CHECKING:
    from refold.cli.rights.verdicts import CallInQuestion, PolicyContext


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("permissions", help="what may run here, and why")
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    explain = what.add_parser("explain", help="what would be said of one call")
    explain.add_argument("call", nargs="?", default="", metavar="CALL",
        help="the call in short, as in 'bash(git status)'")  # fmt: skip
    explain.add_argument("--tool", metavar="NAME", help="the tool, and with it --input")
    explain.add_argument(
        "--input", metavar="JSON", help="its arguments, as a model gives them"
    )
    explain.add_argument("--json", action="store_true", help="as one JSON object")
    _add_ground(explain)
    rules = what.add_parser(
        "list", help="the rules in force here, and where each is written"
    )
    rules.add_argument("--json", action="store_true", help="as JSON, one a line")
    _add_ground(rules)
    test = what.add_parser(
        "test", help="does each call of a file get the verdict it expects?"
    )
    test.add_argument("file", metavar="FILE", help="cases, as YAML, TOML or JSON")
    _add_ground(test)
    replay = what.add_parser(
        "replay", help="what other rules had changed in an old session"
    )
    replay.add_argument("id", metavar="SESSION", help="its id, or the beginning of it")
    replay.add_argument("--rules", required=True, metavar="FILE",
        help="settings with [permissions], and permission_mode if it matters")  # fmt: skip
    replay.add_argument("--json", action="store_true", help="as JSON, one a line")
    taken = what.add_parser("import", help="take over the rules in .claude/settings.json")
    taken.add_argument("file", nargs="?", default="", metavar="FILE")
    taken.add_argument("--cwd", default="", metavar="DIR", help="for this folder")
    taken.add_argument(
        "--print", action="store_true", help="only say what would be taken over"
    )


def run(found: Namespace) -> int:
    match found.what:
        case "explain":
            return _explain(found)
        case "list":
            return _list(found)
        case "test":
            from refold.cli.rights.cases import run as door
        case "replay":
            from refold.cli.rights.replaying import run as door
        case _:
            from refold.cli.rights.importing import run as door
    return door(found)


def _add_ground(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--cwd", default="", metavar="DIR", help="the workspace; the current directory")
    add(
        "--add-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="one more of its roots",
    )
    add("--mode", choices=MODES, help="how much runs unasked")
    for name in ("allow", "ask", "deny"):
        add(f"--{name}", action="append", default=[], metavar="RULE",
            help=f"one more rule that says {name}")  # fmt: skip
    add("--no-config", action="store_true", help="only these flags: no file, no variable")


def _explain(found: Namespace) -> int:
    from refold.journal.fold import View

    call, ground = _call(found), _ground(found)
    decision = ground.judged(call, View())
    sandbox, network = ground.sandbox(call, decision), ground.network(call, decision)
    if found.json:
        document = {
            "decision": decision.verdict,
            "rule": decision.rule or None,
            "source": decision.source or None,
            "reason": decision.reason,
            "once": decision.once,
            "sandbox": sandbox,
            "network": network,
        }
        write(msgspec.json.encode(document).decode() + "\n")
        return 0
    lines = [f"{decision.verdict}: {call.label}", f"  {decision.reason}"]
    if decision.rule:
        lines.append(f"  rule: {decision.rule}, {decision.source}")
    if decision.once and decision.verdict == "ask":
        lines.append("  a yes to it is for this once")
    if sandbox:
        reach = "with the network" if network else "without network"
        lines.append(f"  sandbox: {sandbox}, {reach}")
    write("".join(f"{on_one_line(line)}\n" for line in lines))
    return 0


def _list(found: Namespace) -> int:
    ground = _ground(found)
    for rule in ground.rules:
        if found.json:
            row = {"verdict": rule.verdict, "rule": str(rule), "source": rule.source}
            write(msgspec.json.encode(row).decode() + "\n")
        else:
            write(on_one_line(f"{rule.verdict:<5}  {rule}  # {rule.source}") + "\n")
    if not found.json:
        write(f"mode {ground.mode}, {len(ground.rules)} rules\n")
    return 0


def _call(found: Namespace) -> "CallInQuestion":
    from refold.cli.rights.verdicts import call_of, in_short

    if bool(found.call) == bool(found.tool):
        raise BadInput("name one call: 'bash(git status)', or --tool NAME --input JSON")
    if found.tool:
        return call_of(found.tool, "{}" if found.input is None else found.input)
    if found.input is not None:
        raise BadInput("--input goes with --tool NAME, not with a call in short")
    return in_short(found.call)


def _ground(found: Namespace) -> "PolicyContext":
    from refold.cli.rights.verdicts import ground_of

    ground = ground_of(found)
    if ground.unheeded:
        complain(ground.unheeded)
    return ground
