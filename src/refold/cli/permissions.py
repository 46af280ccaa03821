"""`refold permissions explain|list|test|replay|import`: shows which calls may run, and why.

No call is executed. Only `import` writes files. `cli.rule_tests` computes the verdicts.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from refold.cli.output import confirm
from refold.cli.rule_tests import (
    PolicyContext,
    TestedCall,
    call_of,
    directory,
    parse_short_call,
    policy_context_of,
    replay_rules,
    test_rules,
)
from refold.config.claude_permissions import (
    CLAUDE_DIRECTORY,
    CLAUDE_FILES,
    rules_of_files,
)
from refold.config.paths import paths
from refold.config.project import read_small_file, read_small_files
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, print_note, write
from refold.values.modes import MODE_NAMES
from refold.views.escape import escape_to_one_line


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    explain = subparsers.add_parser(
        "explain", help="show the verdict on a call, and the rule behind it"
    )
    explain.add_argument("call", nargs="?", default="", metavar="CALL",
        help="the call, such as 'bash(git status)'")  # fmt: skip
    explain.add_argument("--tool", metavar="NAME", help="the tool, together with --input")
    explain.add_argument("--input", metavar="JSON", help="the tool's arguments as JSON")
    explain.add_argument("--json", action="store_true", help="print one JSON object")
    _add_workspace_options(explain)
    rules = subparsers.add_parser(
        "list", help="list the active rules and where each is set"
    )
    rules.add_argument("--json", action="store_true", help="print JSON lines")
    _add_workspace_options(rules)
    test = subparsers.add_parser(
        "test", help="check that each call in a file gets the expected verdict"
    )
    test.add_argument("file", metavar="FILE", help="test cases as YAML, TOML or JSON")
    _add_workspace_options(test)
    replay = subparsers.add_parser(
        "replay", help="show which calls of a session other rules would decide differently"
    )
    replay.add_argument("id", metavar="SESSION", help="id of the session, or a prefix")
    replay.add_argument("--rules", required=True, metavar="FILE",
        help="settings file with [permissions] and permission_mode")  # fmt: skip
    replay.add_argument("--json", action="store_true", help="print JSON lines")
    import_parser = subparsers.add_parser(
        "import", help="import the rules of .claude/settings.json"
    )
    import_parser.add_argument("file", nargs="?", default="", metavar="FILE",
        help="the file (default: those in .claude of the directory)")  # fmt: skip
    import_parser.add_argument(
        "--cwd", default="", metavar="DIR", help="the directory that the rules are for"
    )
    import_parser.add_argument(
        "--print",
        action="store_true",
        help="show what would be imported, and change nothing",
    )
    import_parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation"
    )


def run(args: Namespace) -> int:
    match args.what:
        case "explain":
            return _explain(args)
        case "list":
            return _list(args)
        case "test":
            return test_rules(args)
        case "replay":
            return replay_rules(args)
        case _:
            return import_rules(args)


def _add_workspace_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--cwd",
        default="",
        metavar="DIR",
        help="the workspace (default: the current directory)",
    )
    add(
        "--add-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="add a directory to the workspace; repeatable",
    )
    add("--mode", choices=MODE_NAMES, help="the permission mode")
    for name in ("allow", "ask", "deny"):
        add(f"--{name}", action="append", default=[], metavar="RULE",
            help=f"add a rule to permissions.{name}; repeatable")  # fmt: skip
    add(
        "--no-config",
        action="store_true",
        help="use only the rules of these flags, no settings",
    )


def _explain(args: Namespace) -> int:
    """Print the verdict on a call, the rule behind it, and the sandbox. Return exit code 0."""
    from refold.journal.state.fold import View
    from refold.journal.state.outside_text import OutsideText

    call = _read_call_to_test(args)
    context = _policy_context(args)
    decision = context.judge_call(call, View())
    # as if the session had got text from outside at its first event
    later_decision = context.judge_call(call, View(outside_text=OutsideText(since=1)))
    sandbox = context.sandbox(call, decision)
    network = context.network(call, decision)
    named_hosts = decision.confines.hosts.allowed if decision.confines.hosts else None
    if args.json:
        document = {
            "decision": decision.verdict,
            "rule": decision.rule or None,
            "source": decision.source or None,
            "reason": decision.reason,
            "once": decision.once,
            "after_outside_text": later_decision.verdict,
            "sandbox": sandbox,
            "network": network,
            "hosts": named_hosts,
        }
        print_document(document)
        return 0
    lines = [f"{decision.verdict}: {call.label}", f"  {decision.reason}"]
    if decision.rule:
        lines.append(f"  rule: {decision.rule}, {decision.source}")
    if decision.once and decision.verdict == "ask":
        lines.append("  an approval covers this call only")
    if later_decision.verdict != decision.verdict:
        lines.append(
            f"  after text from outside: {later_decision.verdict}, since {later_decision.reason}"
        )
    if sandbox:
        if not network:
            reach = "without network"
        elif named_hosts is None:
            reach = "with every host"
        elif named_hosts:
            reach = f"with named hosts: {', '.join(named_hosts)}"
        else:
            reach = "with no host yet"
        lines.append(f"  sandbox: {sandbox}, {reach}")
    write("".join(f"{escape_to_one_line(line)}\n" for line in lines))
    return 0


def _list(args: Namespace) -> int:
    context = _policy_context(args)
    for rule in context.rules:
        if args.json:
            row = {"verdict": rule.verdict, "rule": str(rule), "source": rule.source}
            print_document(row)
        else:
            write(escape_to_one_line(f"{rule.verdict:<5}  {rule}  # {rule.source}") + "\n")
    if not args.json:
        write(f"mode {context.mode}, {len(context.rules)} rules\n")
    return 0


def _read_call_to_test(args: Namespace) -> TestedCall:
    """Return the call that the arguments describe.

    Raises `BadInput` if the arguments describe no call, or two.
    """
    if bool(args.call) == bool(args.tool):  # both or neither
        raise BadInput("name one call: 'bash(git status)', or --tool NAME --input JSON")
    if args.tool:
        return call_of(args.tool, "{}" if args.input is None else args.input)
    if args.input is not None:
        raise BadInput("--input goes with --tool NAME, not with a call in short")
    return parse_short_call(args.call)


def _policy_context(args: Namespace) -> PolicyContext:
    """Return the policy context that the flags describe, and print if settings are ignored."""
    context = policy_context_of(args)
    if context.ignored_notice:
        print_error(context.ignored_notice)
    return context


def import_rules(args: Namespace) -> int:
    """Store rules of another program for this folder. Return 1 if the user refuses, else 0."""
    folder = os.path.realpath(directory(args.cwd, "--cwd"))
    imported = rules_of_files(_contents(args.file, folder))
    for note in imported.notes:
        print_note(escape_to_one_line(note))
    write("".join(f"{row}\n" for row in imported.lines()))
    has_rules = bool(imported)
    if not has_rules:
        raise BadInput("there is no rule to import")
    if args.print:
        return 0
    if not args.yes and not confirm(f"Apply these rules in {escape_to_one_line(folder)}?"):
        write("Nothing was imported.\n")
        return 1
    file = paths(os.environ).folders
    TrustedFolders(file).import_rules(folder, imported.rules, imported.sha256)
    write(
        f"They apply in {escape_to_one_line(folder)} from now on, and are stored in {file}.\n"
    )
    return 0


def _contents(path: str, folder: str) -> Mapping[str, bytes]:
    """Return the files with rules of Claude Code, by name.

    Return only the file `path`, or, if `path` is "", the files in the .claude directory of
    `folder`. Raises `BadInput` if there are none.
    """
    if path:
        return {path: read_small_file(str(Path(path).expanduser()))}
    files = read_small_files(folder, CLAUDE_DIRECTORY, CLAUDE_FILES, skip=lambda _: False)
    if not files:
        raise BadInput(
            f"there is no {CLAUDE_DIRECTORY}/{CLAUDE_FILES[0]} in {folder}: name a file, or another "
            "folder with --cwd"
        )
    return files
