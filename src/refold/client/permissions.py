"""The permissions of a session: its mode, its rules, and the rules that a user may add.

`permissions` decides what a rule means, `engine.authorize` finds out what a call would do,
and `client.session` takes the user's answers.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from refold.app.app import App, workspace_of
from refold.app.workspace import check_tools
from refold.config.layers import SETTINGS_SOURCE
from refold.config.trusted_folders import ALWAYS_CHOICE, TrustedFolders
from refold.engine.authorize import PolicyContext, describe_access, effective_mode, judge
from refold.errors import BadInput, ToolFailed
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.journal.state.rights import after_planning
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import COMMAND_TOOLS, LATER_TOOLS, Rule, is_about, parse
from refold.session.pending_requests import Permission, Questions
from refold.session.session import Session as Engine
from refold.tools.contract import Tool
from refold.values.display import RunConditions
from refold.values.messages import ToolCall
from refold.values.modes import Mode, Verdict
from refold.values.tools import Confinement, Effect

if TYPE_CHECKING:
    from refold.views.recent_refusals import Refusal


RulePlace: TypeAlias = Literal["", "session", "folder", "user"]
# Modes that a question may offer.
_EASIER_MODES: tuple[Mode, ...] = ("accept-edits", "sandbox")


class PlacedRule(Struct, frozen=True):
    """A rule in force.

    `place` says which of refold's own files has it. "" means that refold cannot change the
    rule: the user must edit the file that `source` names.
    """

    verdict: Verdict
    text: str
    source: str
    place: RulePlace = ""


class _PresentPolicy(Struct, frozen=True):
    """Implements `PolicyContext` for the present directory of the session."""

    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]


class Permissions:
    """The permissions of one session.

    Only `allow`, `save_allow_rule` and `change` change them.
    """

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    @property
    def mode(self) -> Mode:
        return effective_mode(self._app, self._engine.view)

    @property
    def teams(self) -> bool:
        """Whether the agent may lead a team."""
        chosen = self._engine.view.rights.teams
        return self._app.settings.subagents.teams if chosen is None else chosen

    @property
    def tracing(self) -> bool:
        """Whether model requests are recorded as sent."""
        chosen = self._engine.view.rights.tracing
        return self._app.settings.log_requests if chosen is None else chosen

    @property
    def mode_after_planning(self) -> Mode:
        """The mode after a plan is approved, or after plan mode is left."""
        return after_planning(self._engine.view.rights, self._app.mode)

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules of the settings. Rules granted for this session are in `grants`."""
        return self._app.rules

    @property
    def grants(self) -> Sequence[str]:
        return self._engine.view.rights.granted

    @property
    def facts(self) -> Callable[[], Facts]:
        return workspace_of(self._app, self._engine.view).facts

    @property
    def after_outside_text(self) -> Literal["", "asks", "asks now"]:
        """Return whether changes need approval after the model has read text from outside.

        "" means that they do not. "asks" means that they do, but the model has read no such
        text yet. "asks now" means that the model has read such text.
        """
        if not self._app.settings.ask_after_outside_text:
            return ""
        return "asks now" if self._engine.view.outside_text.since else "asks"

    @property
    def rules_file(self) -> str:
        """The file in which the rules for folders are saved."""
        return str(self._app.paths.folders)

    def why_unreadable(self, path: str) -> str:
        """Return why a deny rule forbids reading this file; "" if none does."""
        return workspace_of(self._app, self._engine.view).why_unreadable(path)

    def save_allow_rule(self, rule: str) -> None:
        """Save an allow rule for this folder, for all later sessions."""
        self._app.workspace.store_allow_rules(rule)

    async def allow(self, text: str) -> str:
        """Add an allow rule for the rest of this session, and return it in normal form.

        Raises `BadInput` for an invalid rule, or an unknown tool.
        """
        rule = parse(text, "allow")
        check_tools((rule,), self._app.all_tools)
        await self._engine.inbox.grant(str(rule))
        return str(rule)

    def placed_rules(self) -> Sequence[PlacedRule]:
        """Return the rules in force: first the rules of the settings, then the grants."""
        grants = (
            PlacedRule("allow", text, "this session", "session") for text in self.grants
        )
        return [*rules_of_settings(self._app), *grants]

    async def change(self, rule: PlacedRule, new: str) -> str:
        """Replace the text of a rule by `new`, and return the new text in normal form.

        If `rule.text` is "", the rule is added; if `new` is "", the rule is removed. The
        change applies from the next call on: commands, MCP servers and language servers no
        longer see files that the rule hides. Raises `BadInput` for an invalid rule, and for a
        rule that is not in one of refold's own files.
        """
        if rule.place == "session" and new:
            return await self.allow(new)
        new_text = await to_thread.run_sync(save_rule, self._app, rule, new)
        apply_rule(self._app, rule, new_text)
        return new_text

    async def refusals(self) -> "Sequence[Refusal]":
        """Return the calls that were refused lately, newest first."""
        from refold.views.recent_refusals import recent_refusals

        return recent_refusals(await self._engine.record.entries())

    def exact_rule(self, call: ToolCall) -> str:
        """Return the narrowest rule for this call, for the user to edit.

        If the call has no subject, such as a path or a command, the rule is only the name of
        the tool.
        """
        tool = self._tool(call.name)
        subject = ""
        if tool is not None:
            with suppress(ToolFailed):  # its arguments are not valid
                subject = str(tool.parse(call.arguments).get(tool.subject, ""))
        return f"{call.name}({subject})" if subject else call.name

    def rules_about(self, tool: Tool) -> Sequence[Rule]:
        """Return the rules of the settings and the grants that apply to this tool."""
        granted = (parse(text, "allow") for text in self.grants)
        runs_command = tool.command is not None
        return [
            rule
            for rule in (*self.rules, *granted)
            if is_about(rule.tool, tool.name, tool.effect, command=runs_command)
        ]

    def runs_commands(self, tool: Tool) -> bool:
        """Whether calls of this tool are judged by the commands in them, as calls of bash
        are.
        """
        return tool.command is not None or tool.name in COMMAND_TOOLS

    def rule_sets(self, request: Permission | Questions) -> Sequence[tuple[str, ...]]:
        """Return the sets of rules that an approval may add, the most useful first.

        Each set allows the call, and most sets have one rule. If the result is empty, only
        this one call can be allowed.
        """
        # If another process runs the session, it has sent the sets with the request.
        received = self._engine.request_elsewhere(request.id)
        if received is not None:
            return received.rule_sets
        whole_call = self._engine.unmasked_call(request.call.call)
        return rules_to_offer(
            request.call,
            whole_call,
            self._tool(whole_call.name),
            self._current_context,
            self._engine.view,
        )

    def runs_unasked(
        self, request: Permission | Questions, trial_mode: Mode | None = None
    ) -> bool:
        """Whether this call would run without a question in `trial_mode`.

        If `trial_mode` is None, the present mode is meant. Return False for a call of a
        subagent, because its own session decides that.
        """
        is_of_subagent = bool(request.who)
        if isinstance(request, Questions) or is_of_subagent or request.call.once:
            return False
        whole_call = self._engine.unmasked_call(request.call.call)
        tool = self._tool(whole_call.name)
        if tool is None:
            return False

        def decide_in_mode(
            access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
        ) -> Decision:
            return decide(access, trial_mode or mode, rules, facts)

        try:
            about = describe_access(tool, tool.parse(whole_call.arguments), self.facts())
            decision = judge(
                about, self._current_context, self._engine.view, decider=decide_in_mode
            )
        except ToolFailed:  # its arguments are not valid
            return False
        return decision.verdict == "allow"

    def easier_mode(self, request: Permission | Questions) -> Mode | None:
        """Return a mode in which calls like this one run without a question; None if there
        is none.

        A question may offer this mode to the user.
        """
        received = self._engine.request_elsewhere(request.id)
        if received is not None:  # from the process that runs the session
            return received.easier_mode
        for mode in _EASIER_MODES:
            if self.runs_unasked(request, mode):
                return mode
        return None

    def check_offer(self, request: Permission | Questions, *rules: str) -> None:
        """Raise `BadInput` if `rules`, as the user typed them, do not allow this call."""
        whole_call = self._engine.unmasked_call(request.call.call)
        tool = self._tool(whole_call.name)
        for rule in rules:
            if not parse(rule, "allow", source="what you typed").pattern:
                raise BadInput(f"{rule!r} allows every call: write tool(pattern)")
        has_secret = whole_call != request.call.call  # it would be stored with the rule
        if tool is None or request.call.once or has_secret:
            raise BadInput("no rule can allow this call; it is asked about each time")
        about = describe_access(tool, tool.parse(whole_call.arguments), self.facts())
        decision = judge(about, self._current_context, self._engine.view, rules)
        if decision.verdict != "allow":
            rules_text = " with ".join(map(repr, rules))
            raise BadInput(
                f"{rules_text} does not cover this call, so it would ask again: {decision.reason}"
            )
        without_rules = judge(about, self._current_context, self._engine.view)
        if _is_wider(decision.confines, without_rules.confines):
            raise BadInput(
                "without a rule for hosts this would allow every host: add net(example.org), "
                "or net(all) if that is meant"
            )

    def run_conditions(self, call: ToolCall) -> RunConditions | None:
        """Return the conditions (sandbox, network, files) under which a command would run now.

        Return None if the call runs no command.
        """
        from refold.permissions.network_hosts import hosts_text

        received = self._engine.request_elsewhere(call.id)
        if received is not None:  # from the process that runs the session
            return received.conditions
        tool = self._tool(call.name)
        runs_later = call.name in LATER_TOOLS  # such as `schedule`
        if tool is None or tool.effect is not Effect.RUN or runs_later:
            return None
        facts = self.facts()
        try:
            about = describe_access(tool, tool.parse(call.arguments), facts)
        except ToolFailed:
            return RunConditions(facts.sandboxed)
        confines = judge(about, self._current_context, self._engine.view).confines
        network = about.network or confines.network
        hosts = "" if confines.hosts is None else hosts_text(confines.hosts)
        readable, writable = list[str](), list[str]()
        for path in confines.opened:
            # A sandbox lets no command write outside of the workspace.
            is_protected = facts.sandboxed and facts.outside(path)
            if is_protected or not confines.writes:
                readable.append(path)
            else:
                writable.append(path)
        return RunConditions(
            facts.sandboxed,
            network,
            opened=tuple(writable),
            hosts=hosts,
            shown=tuple(readable),
        )

    @property
    def _current_context(self) -> PolicyContext:
        """The rules, mode and facts by which calls are judged in the present directory."""
        return _PresentPolicy(self._app.rules, self._app.mode, self.facts)

    def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in self._app.all_tools if tool.name == name), None)


def rules_of_settings(app: App) -> Sequence[PlacedRule]:
    """Return the permission rules in the settings of this app."""
    rules = list[PlacedRule]()
    for rule in app.rules:
        source = rule.source or SETTINGS_SOURCE
        rules.append(PlacedRule(rule.verdict, str(rule), source, _rule_place(app, rule)))
    return rules


def save_rule(app: App, rule: PlacedRule, new: str) -> str:
    """Store a change of a rule, and return its new text in normal form.

    If `rule.text` is "", the rule `new` is added; if `new` is "", the rule is removed.
    Raises `BadInput` for an invalid rule, and for a rule that is not in one of refold's own
    files.
    """
    new_text = ""
    if new:
        new_rule = parse(new, rule.verdict)
        check_tools((new_rule,), app.all_tools)
        new_text = str(new_rule)
    match rule.place:
        case "folder":
            folders = TrustedFolders(app.paths.folders)
            folders.change_rule(app.workspace.directory, rule.verdict, rule.text, new_text)
        case "user":
            from refold.config.set_setting import change_rule

            change_rule(app.paths, rule.verdict, rule.text, new_text)
        case _:  # "session" or ""
            raise BadInput(f"{rule.text!r} is set in {rule.source}: change it there")
    return new_text


def apply_rule(app: App, rule: PlacedRule, new: str) -> None:
    """Apply a saved change of a rule to later calls of this app.

    If a server's sandbox shows files that may no longer be read, the server is restarted.
    """
    rules = list[Rule]()
    for present in app.rules:
        place = _rule_place(app, present)
        if (present.verdict, str(present), place) != (rule.verdict, rule.text, rule.place):
            rules.append(present)
    if new:  # "": the rule was removed
        source = ALWAYS_CHOICE if rule.place == "folder" else _user_source(app)
        rules.append(parse(new, rule.verdict, source))
    hides_more_files = app.workspace.use_rules(tuple(rules))
    if hides_more_files and app.mcp is not None:
        app.mcp.connections.restart_programs()


def _rule_place(app: App, rule: Rule) -> RulePlace:
    """Return which of refold's own files has the rule; "" if none has it."""
    if rule.source == ALWAYS_CHOICE:  # the user chose "always" in this folder
        return "folder"
    return "user" if rule.source == _user_source(app) else ""


def _user_source(app: App) -> str:
    """Return the `source` of all rules that the user's own settings contain."""
    return f"user {app.paths.settings}"


def rules_to_offer(
    open_call: OpenCall,
    whole_call: ToolCall,
    tool: Tool | None,
    policy_context: PolicyContext,
    view: View,
) -> Sequence[tuple[str, ...]]:
    """Return sets of rules, each of which allows this call. Pure.

    `whole_call` is the unmasked call: a call with a secret gets no rule, because rules are
    stored. The result is empty if only this call may be allowed, if an ask rule decided, or
    if no rule can see the whole command.
    """
    has_secret = whole_call != open_call.call
    if tool is None or open_call.once or has_secret:
        return ()
    # Imported only when the user is asked.
    from refold.permissions.rule_offers import offers, rule_set, with_hosts

    try:
        facts = policy_context.facts()
        about = describe_access(tool, tool.parse(whole_call.arguments), facts)
        single_rules = [(rule,) for rule in offers(about, facts)]
        candidates = [*single_rules, rule_set(about, facts)]
        without_rules = judge(about, policy_context, view).confines
        about = replace(about, network=about.network or without_rules.network)
        offered = list[tuple[str, ...]]()
        for candidate in candidates:
            rules = with_hosts(candidate, about, facts)
            if not rules:
                continue
            decision = judge(about, policy_context, view, rules)
            is_allowed = decision.verdict == "allow"
            if is_allowed and not _is_wider(decision.confines, without_rules):
                offered.append(rules)
        return offered
    except (ToolFailed, BadInput):  # the arguments of the call are not valid
        return ()


def _is_wider(with_rules: Confinement, without_rules: Confinement) -> bool:
    """Whether the rules would allow every host, although the question names only some hosts."""
    allows_every_host = with_rules.network and with_rules.hosts is None
    return allows_every_host and without_rules.hosts is not None
