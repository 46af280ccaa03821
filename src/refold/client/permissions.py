"""The permissions of a session: its mode, its rules, and the rule that a user may add.

`permissions` decides what a rule means, `engine.authorize` what a call would do; questions
are answered through the handle.
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
    from refold.views.refusals import Refusal


RulePlace: TypeAlias = Literal["", "session", "folder", "user"]
_EASIER_MODES: tuple[Mode, ...] = ("accept-edits", "sandbox")  # that a question may offer


class PlacedRule(Struct, frozen=True):
    """A rule in force. `place`: the setting in which it can be changed; "": only in its file."""

    verdict: Verdict
    text: str
    source: str
    place: RulePlace = ""


class _PolicyHere(Struct, frozen=True):
    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]


class Permissions:
    """The permissions of one session. All but `allow` and `save_allow_rule` only read."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app, self._engine = app, engine

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

        "": they do not. "asks": they do, but it has read none. "asks now": it has read some.
        """
        if not self._app.settings.ask_after_outside_text:
            return ""
        return "asks now" if self._engine.view.outside_text.since else "asks"

    @property
    def rules_file(self) -> str:
        """The file that rules for a folder are saved in."""
        return str(self._app.paths.folders)

    def why_unreadable(self, path: str) -> str:
        """The reason why a deny rule forbids reading this file, or ""."""
        return workspace_of(self._app, self._engine.view).why_unreadable(path)

    def save_allow_rule(self, rule: str) -> None:
        """Save an allow rule for this folder, for every session to come."""
        self._app.workspace.store_allow_rules(rule)

    async def allow(self, text: str) -> str:
        """Add an allow rule for the rest of this session, and return it as written.

        Raises `BadInput` for an invalid rule, or an unknown tool.
        """
        rule = parse(text, "allow")
        check_tools((rule,), self._app.all_tools)
        await self._engine.inbox.grant(str(rule))
        return str(rule)

    def placed_rules(self) -> Sequence[PlacedRule]:
        """The rules in force, those of the settings first."""
        grants = (
            PlacedRule("allow", text, "this session", "session") for text in self.grants
        )
        return [*rules_of_settings(self._app), *grants]

    async def change(self, rule: PlacedRule, new: str) -> str:
        """Replace the text of a rule, and return the new one as it is written.

        An empty text of `rule` adds the new one, an empty `new` removes the rule. Calls are
        judged by the change at once, and commands, MCP servers and language servers see no file
        that it hides. Raises `BadInput` for an invalid rule, or one that is set elsewhere.
        """
        if rule.place == "session" and new:
            return await self.allow(new)
        new = await to_thread.run_sync(save_rule, self._app, rule, new)
        apply_rule(self._app, rule, new)
        return new

    async def refusals(self) -> "Sequence[Refusal]":
        """The calls that were refused lately, newest first."""
        from refold.views.refusals import recent_refusals

        return recent_refusals(await self._engine.record.entries())

    def exact_rule(self, call: ToolCall) -> str:
        """A rule that matches this call, as a text to start from."""
        tool = self._tool(call.name)
        subject = ""
        with suppress(ToolFailed):
            values = tool.parse(call.arguments) if tool else {}
            subject = str(values.get(tool.subject, "")) if tool else ""
        return f"{call.name}({subject})" if subject else call.name

    def rules_about(self, tool: Tool) -> Sequence[Rule]:
        """The rules that name this tool."""
        granted = (parse(text, "allow") for text in self.grants)
        every = (*self.rules, *granted)
        name, effect, command = tool.name, tool.effect, tool.command is not None
        return [r for r in every if is_about(r.tool, name, effect, command=command)]

    def runs_commands(self, tool: Tool) -> bool:
        """Whether its calls are judged by the commands in them, like those of bash."""
        return tool.command is not None or tool.name in COMMAND_TOOLS

    def rule_sets(self, request: Permission | Questions) -> Sequence[tuple[str, ...]]:
        """The sets of rules that an approval may add: the most useful, the narrowest.

        A set has mostly one rule; its rules together cover the call. If there are no sets,
        only this call can be allowed.
        """
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
        """Whether this call would run without a question in this mode (None: the present one).

        False for a call of a subagent: that is decided in its own session.
        """
        if isinstance(request, Questions) or request.who or request.call.once:
            return False
        whole_call = self._engine.unmasked_call(request.call.call)
        tool = self._tool(whole_call.name)

        def decide_in_mode(
            access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
        ) -> Decision:
            return decide(access, trial_mode or mode, rules, facts)

        try:
            if tool is None:
                return False
            about = describe_access(tool, tool.parse(whole_call.arguments), self.facts())
            decision = judge(
                about, self._current_context, self._engine.view, decider=decide_in_mode
            )
        except ToolFailed:
            return False
        return decision.verdict == "allow"

    def easier_mode(self, request: Permission | Questions) -> Mode | None:
        """The mode that a question may offer: in it, calls like this one are not asked about."""
        for mode in _EASIER_MODES:
            if self.runs_unasked(request, mode):
                return mode
        return None

    def check_offer(self, request: Permission | Questions, *rules: str) -> None:
        """Raise `BadInput` if `rules`, as the user typed them, do not allow this call."""
        whole_call = self._engine.unmasked_call(request.call.call)
        tool = self._tool(whole_call.name)
        for rule in rules:
            if not parse(rule, "allow", "what you typed").pattern:
                raise BadInput(f"{rule!r} allows every call: write tool(pattern)")
        if tool is None or request.call.once or whole_call != request.call.call:
            raise BadInput("no rule can allow this call; it is asked about each time")
        about = describe_access(tool, tool.parse(whole_call.arguments), self.facts())
        decision = judge(about, self._current_context, self._engine.view, rules)
        if decision.verdict != "allow":
            rules_text = " with ".join(map(repr, rules))
            raise BadInput(
                f"{rules_text} does not cover this call, so it would ask again: {decision.reason}"
            )
        if _is_wider(
            decision.confines,
            judge(about, self._current_context, self._engine.view).confines,
        ):
            raise BadInput(
                "without a rule for hosts this would allow every host: add net(example.org), "
                "or net(all) if that is meant"
            )

    def run_conditions(self, call: ToolCall) -> RunConditions | None:
        """How a command would be run now; None for a call that runs none."""
        from refold.permissions.network_hosts import hosts_text

        tool = self._tool(call.name)
        if tool is None or tool.effect is not Effect.RUN or call.name in LATER_TOOLS:
            return None
        facts = self.facts()
        try:
            about = describe_access(tool, tool.parse(call.arguments), facts)
        except ToolFailed:
            return RunConditions(facts.sandboxed)
        confines = judge(about, self._current_context, self._engine.view).confines
        network = about.network or confines.network
        hosts = "" if confines.hosts is None else hosts_text(confines.hosts)
        shown = tuple(
            path
            for path in confines.opened
            if not confines.writes or (facts.sandboxed and facts.outside(path))
        )
        opened = tuple(path for path in confines.opened if path not in shown)
        return RunConditions(facts.sandboxed, network, opened, hosts, shown)

    @property
    def _current_context(self) -> PolicyContext:
        """The rules, mode and facts by which calls are judged in the present directory."""
        return _PolicyHere(self._app.rules, self._app.mode, self.facts)

    def _tool(self, name: str) -> Tool | None:
        return next((tool for tool in self._app.all_tools if tool.name == name), None)


def rules_of_settings(app: App) -> Sequence[PlacedRule]:
    """The permission rules in the settings of a start."""
    return [
        PlacedRule(r.verdict, str(r), r.source or SETTINGS_SOURCE, _rule_place(app, r))
        for r in app.rules
    ]


def save_rule(app: App, rule: PlacedRule, new: str) -> str:
    """Store a change of a rule, and return its text as it is written.

    An empty text of `rule` adds the new one, an empty `new` removes the rule. Raises
    `BadInput` for an invalid rule, or one that is set elsewhere.
    """
    if new:
        check_tools((parsed := parse(new, rule.verdict),), app.all_tools)
        new = str(parsed)
    match rule.place:
        case "folder":
            folders = TrustedFolders(app.paths.folders)
            folders.change_rule(app.workspace.directory, rule.verdict, rule.text, new)
        case "user":
            from refold.config.set_setting import change_rule

            change_rule(app.paths, rule.verdict, rule.text, new)
        case _:
            raise BadInput(f"{rule.text!r} is set in {rule.source}: change it there")
    return new


def apply_rule(app: App, rule: PlacedRule, new: str) -> None:
    """Judge the calls of a start by a change that was saved.

    Servers whose sandbox shows what may no longer be read start again.
    """
    left = [
        r
        for r in app.rules
        if (r.verdict, str(r), _rule_place(app, r)) != (rule.verdict, rule.text, rule.place)
    ]
    source = ALWAYS_CHOICE if rule.place == "folder" else _user_source(app)
    added = [parse(new, rule.verdict, source)] if new else []
    if app.workspace.use_rules((*left, *added)) and app.mcp is not None:
        app.mcp.connections.restart_programs()


def _rule_place(app: App, rule: Rule) -> RulePlace:
    if rule.source == ALWAYS_CHOICE:
        return "folder"
    return "user" if rule.source == _user_source(app) else ""


def _user_source(app: App) -> str:
    """The source of a rule of the user's own settings."""
    return f"user {app.paths.settings}"


def rules_to_offer(
    open_call: OpenCall,
    whole_call: ToolCall,
    tool: Tool | None,
    policy_context: PolicyContext,
    view: View,
) -> Sequence[tuple[str, ...]]:
    """The sets of rules of which each alone covers this call and lets it pass.

    Pure. `whole_call` is the call as the model made it: a rule with a secret would be
    stored. There are none if only this call may be allowed, an ask rule decided, or no
    rule can see the whole command.
    """
    if tool is None or open_call.once or whole_call != open_call.call:
        return ()
    from refold.permissions.rule_offers import (
        offers,
        rule_set,
        with_hosts,
    )  # needed only when the user is asked

    try:
        facts = policy_context.facts()
        about = describe_access(tool, tool.parse(whole_call.arguments), facts)
        sets = (*((rule,) for rule in offers(about, facts)), rule_set(about, facts))
        asked = judge(about, policy_context, view).confines
        about = replace(about, network=about.network or asked.network)
        return [
            rules
            for group in sets
            if (rules := with_hosts(group, about, facts))
            and (by := judge(about, policy_context, view, rules)).verdict == "allow"
            and not _is_wider(by.confines, asked)
        ]
    except (ToolFailed, BadInput):
        return ()


def _is_wider(by_rules: Confinement, confinement: Confinement) -> bool:
    """Whether the rules would allow every host, although the question names only some."""
    return by_rules.network and by_rules.hosts is None and confinement.hosts is not None
