"""Authorizes a call: finds what it would access, and applies the rules, mode and grants.

The seam uses it before a call runs, a client to find the rules it may offer, and a program
to ask what would happen: all get the same answer. A call is parsed and described once
(`PreparedCalls`) and carried to its end. What may change meanwhile (links, rules, mode) is
checked each time, and a verdict is reused only while none of these has changed.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Protocol, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.journal.events.kinds import Entry
from refold.journal.state.fold import View
from refold.permissions.facts import Access, Decision, Facts, Target
from refold.permissions.rules import COMMAND_TOOLS, LEAVE_PLAN, Rule, is_command, parse
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.modes import Mode, Verdict
from refold.values.secret_mask import SECRET_MASK, masks_in
from refold.values.tools import Confinement, Effect

SESSION_SOURCE = "this session"

# A child cannot end plan mode: the plan belongs to its parent.
REPORT_ADVICE = "say in your report what should be changed or run"

_STRICTNESS_RANK: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}

_MAX_PREPARED_CALLS = 64  # calls that are only checked are never dropped


class PolicyContext(Protocol):
    """What calls are judged by, besides what the session itself knows."""

    @property
    def rules(self) -> Sequence[Rule]: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def facts(self) -> Callable[[], Facts]: ...


class PermissionDecider(Protocol):
    """Implemented by `permissions.decide`, and by callers that know the verdict already."""

    def __call__(
        self, access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision: ...


class ParentRights(Protocol):
    """What a child may not exceed: the rights of its parent, as they are at that moment."""

    def judge(self, access: Access, facts: Facts) -> Decision: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def grants(self) -> Sequence[str]:
        """What the user allowed for the parent session, and for those above it."""
        ...

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` at each event of the parent and of those above it, until the
        returned function is called.
        """
        ...


def describe_access(tool: Tool, arguments: Mapping[str, object], facts: Facts) -> Access:
    """What a call would do, links followed. Raises `ToolFailed` for bad arguments."""
    return resolve_access(access_from_arguments(tool, arguments), facts)


def access_from_arguments(tool: Tool, arguments: Mapping[str, object]) -> Access:
    """What a call would do, by its arguments alone: no links are followed yet.

    Raises `ToolFailed` if its arguments make no command line.
    """
    if tool.command is not None:
        line = tool.command(arguments)
        return Access(
            tool.name, tool.effect, line.text, network=line.network, command=True,
            hosts=line.hosts,
        )  # fmt: skip
    runs, files = tool.effect is Effect.RUN, tool.names_files(arguments)
    hosts = _parse_hosts(arguments.get("hosts")) if runs else ()
    subject = ", ".join(files) if tool.paths else tool.subject_of(arguments)
    return Access(
        tool.name,
        tool.effect,
        "" if tool.subject == tool.path else subject,
        tuple(Target(path, "") for path in files),
        str(arguments.get("cwd", "")) if runs else "",
        network=runs and (arguments.get("network") is True or bool(hosts)),
        hosts=hosts,
    )


def _parse_hosts(value: object) -> tuple[str, ...]:
    """The hosts that a call names, as patterns. Raises `ToolFailed`."""
    if not isinstance(value, (list, tuple)) or not value:
        return ()
    from refold.values.hosts import expand_all

    try:
        return expand_all(map(str, cast("Sequence[object]", value)))
    except ValueError as error:
        raise ToolFailed(f"hosts: {error}. Nothing was done.") from error


def resolve_access(access: Access, facts: Facts) -> Access:
    """Follow the links in the paths of an access, as they are now. Raises `ToolFailed`."""
    if not access.files and not access.cwd:
        return access
    files = tuple(Target(target.path, facts.follow(target.path)) for target in access.files)
    return replace(access, files=files, cwd=facts.follow(access.cwd) if access.cwd else "")


def judge(
    access: Access,
    policy_context: PolicyContext,
    view: View,
    extra_rules: Sequence[str] = (),
    parent: ParentRights | None = None,
    decider: PermissionDecider | None = None,
) -> Decision:
    """The decision on a call at this moment. `extra_rules` are allow rules that the
    user might still grant.

    `parent` has the rights of this session's parent: a subagent may not do more than its
    parent, and what the user allowed there need not be asked here again.
    """
    if decider is None:
        from refold.permissions.decide import decide as decider  # the first call needs it

    granted = [*session_grants(view, parent), *extra_rules]
    rules = [
        *policy_context.rules,
        *(parse(rule, "allow", SESSION_SOURCE) for rule in granted),
    ]
    facts = policy_context.facts()
    outside_text_read = facts.asks_after_outside_text and view.outside_text.since > 0
    known = replace(facts, read_outside_text=True) if outside_text_read else facts
    own = decider(access, effective_mode(policy_context, view, parent), rules, known)
    if parent is None:
        return own
    both = stricter_decision(own, parent.judge(access, facts))
    if parent.mode != "plan":
        return both
    return replace(both, reason=both.reason.replace(LEAVE_PLAN, REPORT_ADVICE))


def effective_mode(
    policy_context: PolicyContext, view: View, parent: ParentRights | None = None
) -> Mode:
    """The session's own mode, or that of its parent, or of the settings.

    While its parent is in plan mode, so is a subagent, whatever its own mode is.
    """
    if parent is not None and parent.mode == "plan":
        return "plan"
    return view.rights.mode or (parent.mode if parent else policy_context.mode)


def session_grants(view: View, parent: ParentRights | None = None) -> Sequence[str]:
    """The rules that the user granted for this session, here or in its parents."""
    return (*view.rights.granted, *(parent.grants if parent else ()))


def stricter_decision(decision: Decision, other: Decision) -> Decision:
    """What both decisions allow. If both ask or deny, the second gives the reason."""
    first, second = (
        (other, decision)
        if _STRICTNESS_RANK[other.verdict] >= _STRICTNESS_RANK[decision.verdict]
        else (decision, other)
    )
    first_confinement, second_confinement = first.confines, second.confines
    both = Confinement(
        first_confinement.writes and second_confinement.writes,
        first_confinement.network and second_confinement.network,
        tuple(
            path for path in first_confinement.opened if path in second_confinement.opened
        ),
        tuple(path for path in first_confinement.seen if path in second_confinement.seen),
        first_confinement.narrow or second_confinement.narrow,
        _git_paths(first_confinement, second_confinement),
        second_confinement.hosts
        if first_confinement.hosts is None
        else first_confinement.hosts.within(second_confinement.hosts),
    )
    outside = first.outside or (second.outside and second.verdict == first.verdict)
    once = first.once or second.once
    return replace(first, once=once, outside=outside, confines=both)


def _git_paths(mine: Confinement, limits: Confinement) -> tuple[str, ...]:
    """The paths that both let git write, without those that both open by name."""
    first, second = (
        (*confinement.opened, *confinement.of_git) for confinement in (mine, limits)
    )
    named = {path for path in mine.opened if path in limits.opened}
    return tuple(path for path in first if path in second and path not in named)


def fingerprint(call: ToolCall, access: Access, command_paths: Sequence[str] = ()) -> str:
    """A hash of the call as the model made it, of where its paths and those in its command
    (`command_paths`) lead, and of its command line, if its tool makes that: the file of the tool may change
    while the user thinks.

    The user approves exactly this; if the fingerprint changes, the approval does not apply.
    """
    parts = (
        call.name,
        bytes(call.arguments).decode(),
        access.cwd,
        *(part for target in access.files for part in (target.path, target.real)),
        *command_paths,
    )
    if access.command:
        parts = (*parts, access.subject)
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


class PreparedCall(Struct, frozen=True):
    """A call as its tool understands it; `unresolved` is what it would do, no path followed yet."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, object]
    unresolved: Access


class ResolvedCall(Struct, frozen=True):
    """What a call would do now, where paths in its command lead, and the fingerprint."""

    access: Access
    command_paths: Sequence[str]
    hash: str


def check_masks(tool: Tool, arguments: Mapping[str, object]) -> None:
    """Raise `ToolFailed` if a tool would use the mask of a secret instead of its value.

    File tools put the value back, so they are not checked. A path or a pattern may contain
    "[secret]" itself, so a mask without a tag counts only in a command that writes.
    """
    text = str(arguments.get("command", "")) if tool.name in COMMAND_TOOLS else ""
    writes = ">" in text or "<<" in text
    if tool.dry_run or tool.effect not in (Effect.RUN, Effect.CHANGE):
        return
    mask = next((m for m in masks_in(arguments) if writes or m != SECRET_MASK), "")
    if mask:
        raise ToolFailed(
            f"{mask} stands for a secret value that you were not shown, so {tool.name} would "
            "use the mask instead of the value. Change the file with edit_file, read the value "
            "from its file or variable in the command, or ask the user. Nothing was done."
        )


class _CachedDecision(Struct, frozen=True):
    """A decision, and what it depends on; `link_targets` maps followed paths to targets."""

    access: Access
    mode: Mode
    rules: Sequence[Rule]
    facts: Facts
    link_targets: Mapping[str, str]
    decision: Decision


class PreparedCalls:
    """The prepared calls of one session. Takes calls as the model made them, unmasked."""

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedCall] = {}
        self._resolved: dict[str, ResolvedCall] = {}
        self._verdicts: dict[str, _CachedDecision] = {}
        self.in_order = anyio.Lock()

    def prepare(self, call: ToolCall, tool: Tool) -> PreparedCall:
        """Parse and describe a call. Raises `ToolFailed` for invalid arguments."""
        prepared = self._prepared.get(call.id)
        if prepared is None or prepared.tool is not tool or prepared.call != call:
            self.drop(call.id)
            arguments = tool.parse(call.arguments)
            check_masks(tool, arguments)
            prepared = PreparedCall(
                call, tool, arguments, access_from_arguments(tool, arguments)
            )
            self._prepared[call.id] = prepared
            if len(self._prepared) > _MAX_PREPARED_CALLS:
                self.drop(next(iter(self._prepared)))
        return prepared

    def resolve(self, call: ToolCall, tool: Tool, facts: Facts) -> ResolvedCall:
        """Follow the links in its paths, as they are now. Raises `ToolFailed`."""
        access = resolve_access(self.prepare(call, tool).unresolved, facts)
        command_paths: Sequence[str] = ()
        if is_command(access):
            from refold.permissions.shell.named_files import targets

            command_paths = targets(access.subject, access.cwd, facts)
        last = self._resolved.get(call.id)
        if last is None or (last.access, last.command_paths) != (access, command_paths):
            hash_ = fingerprint(call, access, command_paths)
            last = self._resolved[call.id] = ResolvedCall(access, command_paths, hash_)
        return last

    def decide(
        self, call_id: str, access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision:
        """`permissions.decide`, cached while its inputs and followed links stay the same.

        It is pure except for the links it follows, and those are followed again.
        """
        last = self._verdicts.get(call_id)
        if (
            last is not None
            and (last.access, last.mode, last.rules) == (access, mode, rules)
            and last.facts == facts
            and all(facts.follow(path) == real for path, real in last.link_targets.items())
        ):
            return last.decision
        from refold.permissions.decide import decide

        link_targets: dict[str, str] = {}

        def follow(path: str) -> str:
            link_targets[path] = real = facts.follow(path)
            return real

        decision = decide(access, mode, rules, replace(facts, follow=follow))
        self._verdicts[call_id] = _CachedDecision(
            access, mode, rules, facts, link_targets, decision
        )
        return decision

    def drop(self, call_id: str) -> None:
        """Forget a call that has ended."""
        for cache in (self._prepared, self._resolved, self._verdicts):
            cache.pop(call_id, None)
