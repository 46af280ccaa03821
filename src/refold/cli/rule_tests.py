"""Computes whether a call would be allowed, without a session, and runs tests of rules.

A verdict is computed as in a session: the tool parses the arguments, `engine.authorize`
describes the access, `permissions.decide` decides. `refold permissions replay` compares the
verdicts of a session with those of other rules. `refold permissions test FILE` compares
verdicts with the expected ones: a case is a table with `expect` ("allow", "ask", "deny", or a
list of them), a call (`tool` and `input`, or `command` for bash), and optionally `mode`,
`allow`, `ask`, `deny` and `name`. `defaults` applies to every case that does not set the same
key.
"""

import os
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.app.session_index import session_index
from refold.app.workspace import Workspace, WorkspaceDirectories, home
from refold.cli.session_argument import find_session_id
from refold.config.folder_settings import load_folder_settings
from refold.config.layers import Origin, from_file, from_flags, rules_of, rules_with_source
from refold.config.load import combine
from refold.config.paths import Paths, paths
from refold.config.settings import Permissions, RuleWithCases, Settings, Word
from refold.engine.authorize import describe_access, judge
from refold.engine.calls import NOBODY_TO_ASK
from refold.errors import BadInput, ToolFailed, reason_of
from refold.headless.streams import print_document, print_error, write
from refold.journal.events.kinds import Entry, Judged
from refold.journal.state.fold import View, apply
from refold.permissions.facts import Decision, Facts
from refold.permissions.rules import Rule
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.values.modes import MODE_NAMES, Mode, Verdict
from refold.values.tools import Effect
from refold.views.escape import escape_to_one_line

Profile: TypeAlias = Literal["read-only", "workspace", "off"]
# a tool, and its subject in parentheses, as in bash(git status)
_SHORT_CALL_PATTERN = re.compile(r"([A-Za-z0-9_]+)(?:\((.*)\))?", re.DOTALL)


class TestedCall(Struct, frozen=True):
    """A call whose verdict is computed.

    `arguments` are complete, as a model would pass them. For a short form like `bash(git
    status)`, they are only the subject.
    """

    tool: Tool
    arguments: Mapping[str, object]

    @property
    def label(self) -> str:
        return self.tool.label(self.arguments)


class PolicyContext(Struct, frozen=True):
    """The permission rules and settings for calls in a folder.

    `ignored_notice` says why settings of the folder are ignored; "" if none are.
    """

    settings: Settings
    rules: Sequence[Rule]
    mode: Mode
    workspace_facts: Facts
    ignored_notice: str = ""

    def facts(self) -> Facts:
        return self.workspace_facts

    def judge_call(self, call: TestedCall, view: View) -> Decision:
        """Return the decision on a call; "deny" if its arguments are invalid."""
        try:
            access = describe_access(call.tool, call.arguments, self.workspace_facts)
        except ToolFailed as error:  # invalid arguments: a session denies the call, too
            return Decision("deny", reason=str(error))
        return judge(access, self, view)

    def sandbox(self, call: TestedCall, decision: Decision) -> Profile | None:
        """Return the profile of the sandbox for a call; None if the call runs no command."""
        if call.tool.effect is not Effect.RUN:
            return None
        if not self.workspace_facts.sandboxed:
            return "off"
        may_write = (
            decision.confines.writes and self.settings.sandbox.profile != "read-only"
        )
        return "workspace" if may_write else "read-only"

    def network(self, call: TestedCall, decision: Decision) -> bool | None:
        """Return whether a call may use the network; None if the call runs no command."""
        sandbox = self.sandbox(call, decision)
        if sandbox is None:
            return None
        allowed = decision.confines.network or self.settings.sandbox.network
        return allowed or sandbox == "off"


def policy_context_of(args: Namespace) -> PolicyContext:
    """Return the policy context that flags such as --cwd, --mode and --allow describe."""
    folder = directory(args.cwd, "--cwd")
    roots = (folder, *(directory(path, "--add-dir") for path in args.add_dir))
    flags: dict[str, object] = {
        "permission_mode": MODE_NAMES.get(args.mode or ""),
        "permissions.allow": tuple(args.allow),
        "permissions.ask": tuple(args.ask),
        "permissions.deny": tuple(args.deny),
    }
    if args.no_config:  # neither files nor environment variables of the user count
        environ: Mapping[str, str] = {"PATH": os.defpath}
        settings = combine([from_flags(flags)]).settings
        return policy_context(settings, paths({"HOME": home({})}), environ, roots)
    places = paths(os.environ)
    loaded = load_folder_settings(folder, places, os.environ, flags)
    context = policy_context(loaded.settings, places, os.environ, roots)
    return replace(context, ignored_notice=loaded.reason_ignored)


def policy_context(
    settings: Settings, paths: Paths, environ: Mapping[str, str], roots: Sequence[Path]
) -> PolicyContext:
    """Return the policy context of a session with these settings.

    `roots` are the directories of its workspace.
    """
    first_root, *more_roots = roots
    directories = WorkspaceDirectories(first_root, tuple(more_roots))
    workspace = Workspace(settings, paths, environ, directories)
    try:
        return PolicyContext(
            settings, workspace.rules, settings.permission_mode, workspace.facts()
        )
    finally:
        workspace.close()


def call_of(name: str, text: str) -> TestedCall:
    """Return a call of the tool `name` with the JSON arguments `text`.

    Raises `BadInput` for invalid JSON.
    """
    tool = builtin_tool(name)
    try:
        return TestedCall(tool, tool.parse(text.encode("utf-8", errors="replace")))
    except ToolFailed as error:
        raise BadInput(f"{name} cannot be called with {text[:200]!r}: {error}") from error


def parse_short_call(text: str) -> TestedCall:
    """Return the call for a short form like `bash(git status)`. Raises `BadInput`."""
    match = _SHORT_CALL_PATTERN.fullmatch(text.strip())
    if not match:
        raise BadInput(f"{text!r} is not a call: write it as bash(git status)")
    tool = builtin_tool(match[1])
    if match[2] is None and tool.subject:
        raise BadInput(f"{text!r} does not say its {tool.subject}: write {match[1]}(…)")
    return TestedCall(tool, {tool.subject: match[2]} if tool.subject else {})


def builtin_tool(name: str) -> Tool:
    """Return the built-in tool `name`. Raises `BadInput` if there is none."""
    tools = {tool.name: tool for tool in builtin()}
    if name in tools:
        return tools[name]
    suggestions = get_close_matches(name.lower(), tools, n=1, cutoff=0.4)
    if suggestions:
        hint = f"did you mean {suggestions[0]}?"
    else:
        hint = f"there are {', '.join(tools)}"
    raise BadInput(f"there is no tool {name!r}; {hint}")


def directory(text: str, flag: str) -> Path:
    """Return the absolute path of the directory `text`; the current one for ""."""
    path = Path(text or ".").expanduser().absolute()
    if not path.is_dir():
        raise BadInput(f"{flag} {text!r}: there is no such directory")
    return path


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case of a test file: a call, the rules to add for it, and the expected verdict."""

    expect: Verdict | tuple[Verdict, ...]
    name: str = ""
    tool: str = ""
    input: dict[str, Any] | None = None
    command: str | None = None
    mode: str = ""
    allow: tuple[Word | RuleWithCases, ...] = ()
    ask: tuple[Word | RuleWithCases, ...] = ()
    deny: tuple[Word | RuleWithCases, ...] = ()

    @property
    def call(self) -> TestedCall:
        """The call that the case describes. Raises `BadInput`."""
        if self.command is not None:
            if self.input is not None or self.tool not in ("", "bash"):
                raise BadInput("give either command, or tool and input")
            return call_of("bash", msgspec.json.encode({"command": self.command}).decode())
        if not self.tool:
            raise BadInput("the call is missing: give command, or tool and input")
        return call_of(self.tool, msgspec.json.encode(self.input or {}).decode())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return (self.expect,) if isinstance(self.expect, str) else self.expect


class Cases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cases: list[dict[str, Any]]
    defaults: dict[str, Any] = {}


def test_rules(args: Namespace) -> int:
    """Print the cases with an unexpected verdict. Return 1 if there are any, otherwise 0."""
    file = Path(args.file).expanduser()
    context = policy_context_of(args)
    cases = list(_cases(file))
    failed = 0
    for number, case in enumerate(cases, 1):
        case_name = f"case {number}, {case.name}" if case.name else f"case {number}"
        call, decision = _verdict_of_case(case, context, f"{file}, {case_name}")
        if decision.verdict not in case.verdicts:
            failed += 1
            expected = " or ".join(case.verdicts)
            verdict = f"expected {expected}, got {decision.verdict}: {decision.reason}"
            write(escape_to_one_line(f"{case_name}: {call.label}: {verdict}") + "\n")
    write(f"{len(cases)} cases, {failed} failed\n")
    return 1 if failed else 0


def _verdict_of_case(
    case: Case, context: PolicyContext, place: str
) -> tuple[TestedCall, Decision]:
    """Return the call of the case, and the decision on the call.

    Raises `BadInput` for an invalid case; `place` is the name of the case in the error.
    """
    try:
        if case.mode and case.mode not in MODE_NAMES:
            raise BadInput(
                f"there is no mode {case.mode!r}; there are {', '.join(MODE_NAMES)}"
            )
        case_rules = rules_of(_permissions_of_case(case, place))
        call = case.call
    except BadInput as error:
        text = str(error)
        # an error of a rule names the place already
        raise BadInput(text if text.startswith(place) else f"{place}: {text}") from error
    mode = MODE_NAMES[case.mode] if case.mode else context.mode
    judged = replace(context, rules=(*context.rules, *case_rules), mode=mode)
    return call, judged.judge_call(call, View())


def _permissions_of_case(case: Case, place: str) -> Permissions:
    """Return the rules of the case. `place` is the origin of the rules that errors name."""
    origin = Origin(None, place)
    return Permissions(
        allow=rules_with_source(case.allow, origin),
        ask=rules_with_source(case.ask, origin),
        deny=rules_with_source(case.deny, origin),
    )


def _cases(file: Path) -> Iterator[Case]:
    """Yield the cases in a file, with its default values. Raises `BadInput`."""
    document = _document(file)
    try:
        suite = msgspec.convert(
            {"cases": document} if isinstance(document, list) else document, Cases
        )
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{file} holds no cases: {error}; write a list of them, or one under `cases`"
        ) from error
    if not suite.cases:
        raise BadInput(f"there are no cases in {file}")
    for number, case in enumerate(suite.cases, 1):
        try:
            yield msgspec.convert({**suite.defaults, **case}, Case)
        except msgspec.ValidationError as error:
            raise BadInput(f"{file}, case {number}: {error}") from error


def _document(file: Path) -> object:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the cases in {file} cannot be read: {reason_of(error)}") from error
    try:
        return _parse_document(file.suffix.lower(), text)
    except (ValueError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise BadInput(f"the cases in {file} cannot be read: {message}") from error


def _parse_document(kind: str, text: str) -> object:
    """Parse `text`. `kind` is the suffix of its file; all but .toml and .json is YAML."""
    if kind == ".toml":
        import tomllib

        return tomllib.loads(text)
    if kind == ".json":
        return msgspec.json.decode(text)
    import yaml  # imported only for tests of rules

    try:
        return cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class ReplayedVerdict(Struct, frozen=True):
    """A recorded call, with its recorded verdict and its verdict under the present rules.

    `now`, the present verdict, is None if the tool no longer exists.
    """

    seq: int
    label: str
    then: Judged
    now: Decision | None

    @property
    def is_changed(self) -> bool:
        """Whether the present verdict differs; False if the tool no longer exists."""
        # Without a terminal, an "ask" of the rules was recorded as "deny".
        has_no_user = self.then.verdict == "deny" and self.then.reason.endswith(
            NOBODY_TO_ASK
        )
        before = "ask" if has_no_user else self.then.verdict
        return self.now is not None and self.now.verdict != before


def replay_rules(args: Namespace) -> int:
    """Print the calls that get another verdict. Return 1 if the journal is damaged, else 0."""
    places = paths(os.environ)
    index = session_index(places)
    session = find_session_id(index, args.id)
    entries, damage = index.entries(session)
    directories = index.directories(session)
    roots = (Path(directories.directory or os.getcwd()), *map(Path, directories.roots))
    context = _context_with_rules(Path(args.rules).expanduser(), places, roots)
    judged = list(_replay_verdicts(entries, context))
    changed = [verdict for verdict in judged if verdict.is_changed]
    for verdict in changed:
        if args.json:
            print_document(_row(verdict))
        else:
            write(_lines(verdict))
    unknown_count = sum(verdict.now is None for verdict in judged)
    if not args.json:
        write(
            f"{len(judged) - unknown_count} calls, {len(changed)} would get another verdict\n"
        )
    if unknown_count:
        print_error(f"{unknown_count} calls of tools that do not exist here")
    if damage:
        print_error(damage)
    return 1 if damage else 0


def _context_with_rules(file: Path, paths: Paths, roots: tuple[Path, ...]) -> PolicyContext:
    """Return the policy context with the rules of a file. Raises `BadInput` if it is absent."""
    if not file.is_file():
        raise BadInput(f"there is no file {str(file)!r} with rules")
    settings = combine([from_file(file, "user")]).settings
    return policy_context(settings, paths, os.environ, roots)


def _replay_verdicts(
    entries: list[Entry], context: PolicyContext
) -> Iterator[ReplayedVerdict]:
    """Yield the recorded and the present verdict on each call that was judged.

    The present verdict is computed with the state that the session had then.
    """
    view = View()
    tools = {tool.name: tool for tool in builtin()}
    for entry in entries:
        if isinstance(entry.event, Judged):
            yield from _judge_again(entry.seq, entry.event, view, context, tools)
        view = apply(view, entry)


def _judge_again(
    seq: int,
    judged: Judged,
    view: View,
    context: PolicyContext,
    tools: Mapping[str, Tool],
) -> Iterator[ReplayedVerdict]:
    """Yield both verdicts on the call of `judged`; nothing if its arguments were invalid."""
    open_call = view.conversation.call(judged.call_id)
    if open_call is None:
        return
    tool = tools.get(open_call.call.name)
    if tool is None:
        yield ReplayedVerdict(seq, open_call.call.name, judged, now=None)
        return
    try:
        call = TestedCall(tool, tool.parse(open_call.call.arguments))
    except ToolFailed:  # it was refused because of its arguments, and would be again
        return
    yield ReplayedVerdict(seq, call.label, judged, context.judge_call(call, view))


def _row(verdict: ReplayedVerdict) -> dict[str, object]:
    """Return a changed verdict as JSON values."""
    assert verdict.now is not None  # without its tool, a call is not changed
    now = verdict.now
    return {
        "seq": verdict.seq,
        "call": verdict.label,
        "then": {"decision": verdict.then.verdict, **_origin(verdict.then)},
        "now": {"decision": now.verdict, **_origin(now)},
    }


def _origin(entry: Judged | Decision) -> dict[str, str | None]:
    return {
        "rule": entry.rule or None, "source": entry.source or None, "reason": entry.reason,
    }  # fmt: skip


def _lines(verdict: ReplayedVerdict) -> str:
    """Return a changed verdict as three lines of text."""
    assert verdict.now is not None  # without its tool, a call is not changed
    now = verdict.now
    lines = (
        f"{verdict.seq}  {verdict.label}",
        f"  then {verdict.then.verdict:<5}  {verdict.then.reason}",
        f"  now  {now.verdict:<5}  {now.reason}",
    )
    return "".join(f"{escape_to_one_line(line)}\n" for line in lines)
