"""Authorizes a call: finds what it would access, and applies the rules, mode and grants.

The seam uses this module before a call runs, a client to find the rules that it may offer, and
a program to find out what would happen. All get the same answer. A call is parsed and described
once (`PreparedCalls`), and the result is used until the call ends. Links, rules and mode may
change meanwhile, so they are checked each time; a verdict is reused only while none of them has
changed.
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
from refold.values.path_names import below
from refold.values.secret_mask import SECRET_MASK, masks_in
from refold.values.tools import Confinement, Effect

SESSION_SOURCE = "this session"

# A child cannot end plan mode, because the plan belongs to its parent.
REPORT_ADVICE = "say in your report what should be changed or run"

_STRICTNESS_RANK: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}

_MAX_PREPARED_CALLS = 64  # calls that were only checked are dropped when there are more


class PolicyContext(Protocol):
    """The rules, the mode and the facts by which calls are judged, besides a session's view."""

    @property
    def rules(self) -> Sequence[Rule]:
        """Return the rules by which calls are judged, besides those of the session."""
        ...

    @property
    def mode(self) -> Mode:
        """Return the mode for a session that has chosen none."""
        ...

    @property
    def facts(self) -> Callable[[], Facts]:
        """Return a function that determines the present facts."""
        ...


class PermissionDecider(Protocol):
    """Decides whether a call may run.

    `permissions.decide` implements this protocol, and so do callers with a known verdict.
    """

    def __call__(
        self, access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision: ...


class ParentRights(Protocol):
    """The present rights of a child's parent, which the child may not exceed."""

    def judge(self, access: Access, facts: Facts) -> Decision:
        """Return what the parent's rights allow for this access."""
        ...

    @property
    def mode(self) -> Mode:
        """Return the parent's present mode."""
        ...

    @property
    def grants(self) -> Sequence[str]:
        """The rules that the user granted for the parent session and its ancestors."""
        ...

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` at each event of the parent and of its ancestors, until the returned
        function is called.
        """
        ...


def describe_access(tool: Tool, arguments: Mapping[str, object], facts: Facts) -> Access:
    """Return what a call would access, with links followed.

    Raises `ToolFailed` for bad arguments.
    """
    return resolve_access(access_from_arguments(tool, arguments), facts)


def access_from_arguments(tool: Tool, arguments: Mapping[str, object]) -> Access:
    """Return what a call would access according to its arguments; no links are followed.

    Raises `ToolFailed` if the tool cannot make a command line from the arguments.
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
    """Return the patterns of the hosts that a call names. Raises `ToolFailed` for an invalid
    one.
    """
    if not isinstance(value, (list, tuple)) or not value:
        return ()
    from refold.values.hosts import expand_all

    try:
        return expand_all(map(str, cast("Sequence[object]", value)))
    except ValueError as error:
        raise ToolFailed(f"hosts: {error}. Nothing was done.") from error


def resolve_access(access: Access, facts: Facts) -> Access:
    """Return the access with the links in its paths followed as they are now. Raises
    `ToolFailed`.
    """
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
    """Decide whether the call with this access may run at this moment.

    `extra_rules` are allow rules that the user might still grant. `parent` has the rights of
    the parent, if the session is a subagent: it may not do more than its parent, and the user
    is not asked again about what the parent may do.
    """
    if decider is None:
        # Imported late: only the first call needs it.
        from refold.permissions.decide import decide as decider

    granted = [*session_grants(view, parent), *extra_rules]
    rules = [
        *policy_context.rules,
        *(parse(rule, "allow", SESSION_SOURCE) for rule in granted),
    ]
    facts = policy_context.facts()
    outside_text_read = facts.asks_after_outside_text and view.outside_text.since > 0
    own_facts = replace(facts, read_outside_text=True) if outside_text_read else facts
    own = decider(access, effective_mode(policy_context, view, parent), rules, own_facts)
    if parent is None:
        return own
    both = stricter_decision(own, parent.judge(access, facts))
    if parent.mode != "plan":
        return both
    # Only the parent can leave plan mode.
    return replace(both, reason=both.reason.replace(LEAVE_PLAN, REPORT_ADVICE))


def effective_mode(
    policy_context: PolicyContext, view: View, parent: ParentRights | None = None
) -> Mode:
    """Return the session's own mode; if none is set, its parent's mode or the mode in the
    settings.

    While its parent is in plan mode, a subagent is in plan mode, too, whatever its own mode is.
    """
    if parent is not None and parent.mode == "plan":
        return "plan"
    return view.rights.mode or (parent.mode if parent else policy_context.mode)


def session_grants(view: View, parent: ParentRights | None = None) -> Sequence[str]:
    """Return the rules that the user granted for this session or its parents."""
    return (*view.rights.granted, *(parent.grants if parent else ()))


def stricter_decision(first: Decision, second: Decision) -> Decision:
    """Combine two decisions into one that allows only what both allow.

    The decision with the stricter verdict gives the reason; between equals, the second.
    """
    stricter, milder = second, first
    if _STRICTNESS_RANK[first.verdict] > _STRICTNESS_RANK[second.verdict]:
        stricter, milder = first, second
    outside = stricter.outside or (milder.outside and milder.verdict == stricter.verdict)
    return replace(
        stricter,
        once=stricter.once or milder.once,
        outside=outside,
        confines=_stricter_confinement(stricter.confines, milder.confines),
    )


def _stricter_confinement(first: Confinement, second: Confinement) -> Confinement:
    """Return the confinement that permits only what both permit."""
    hosts = second.hosts
    if first.hosts is not None:  # None: every host
        hosts = first.hosts.within(hosts)
    return Confinement(
        first.writes and second.writes,
        first.network and second.network,
        tuple(path for path in first.opened if path in second.opened),
        tuple(path for path in first.seen if path in second.seen),
        first.narrow or second.narrow,
        _git_paths(first, second),
        hosts,
    )


def _git_paths(first: Confinement, second: Confinement) -> tuple[str, ...]:
    """Return the paths that both confinements let git write.

    A path that both open for all programs is left out: git may write it anyway.
    """
    first_paths = (*first.opened, *first.of_git)
    common = {*second.opened, *second.of_git} - (set(first.opened) & set(second.opened))
    return tuple(path for path in first_paths if path in common)


def fingerprint(
    call: ToolCall,
    access: Access,
    command_paths: Sequence[str] = (),
    movable_root: str = "",
) -> str:
    """Return a hash of everything that an approval of a call covers.

    An approval covers the call as the model made it, the targets of its paths and of the paths
    in its command (`command_paths`), and the command line that its tool makes, if any: the file
    that defines the tool may change while the user thinks. If the fingerprint changes, the
    approval does not apply. Paths in `movable_root`, a folder that may be moved meanwhile, are
    taken relative to it.
    """
    if movable_root:
        command_paths = sorted(
            _relative_paths(movable_root, path) for path in command_paths
        )
    files = (part for target in access.files for part in (target.path, target.real))
    parts = (
        call.name,
        bytes(call.arguments).decode(),
        *(_relative_paths(movable_root, path) for path in (access.cwd, *files)),
        *command_paths,
    )
    if access.command:
        parts = (*parts, access.subject)
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def _relative_paths(root: str, paths: str) -> str:
    """Return `paths`, joined by NUL, with each path in `root` made relative to it.

    If `root` is "", the paths do not change.
    """
    if not root:
        return paths
    return "\0".join(
        f".{path[len(root) :]}" if below(path, root) else path for path in paths.split("\0")
    )


class PreparedCall(Struct, frozen=True):
    """A call as its tool understands it.

    `unresolved` is what the call would access, before links are followed.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, object]
    unresolved: Access


class ResolvedCall(Struct, frozen=True):
    """What a call would access now, with links followed, also in the paths of its command."""

    access: Access
    command_paths: Sequence[str]
    hash: str


def check_masks(tool: Tool, arguments: Mapping[str, object]) -> None:
    """Raise `ToolFailed` if a tool would use the mask of a secret in place of the secret.

    File tools replace masks by the secrets, so they are not checked. A path or a pattern may
    contain "[secret]" itself, so a mask without a tag is refused only in a command that writes.
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
    """A decision and its inputs.

    `link_targets` maps the paths that were followed to their targets.
    """

    access: Access
    mode: Mode
    rules: Sequence[Rule]
    facts: Facts
    link_targets: Mapping[str, str]
    decision: Decision


class PreparedCalls:
    """The prepared calls of one session.

    The methods take calls as the model made them, unmasked.
    """

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedCall] = {}
        self._resolved: dict[str, ResolvedCall] = {}
        self._verdicts: dict[str, _CachedDecision] = {}
        self.in_order = anyio.Lock()  # held while a question is made and recorded

    def prepare(self, call: ToolCall, tool: Tool) -> PreparedCall:
        """Return the call as its tool understands it. Raises `ToolFailed` for invalid
        arguments.
        """
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
        """Return what the call would access, with links followed as they are now. Raises
        `ToolFailed`.
        """
        access = resolve_access(self.prepare(call, tool).unresolved, facts)
        command_paths: Sequence[str] = ()
        if is_command(access):
            from refold.permissions.shell.named_files import targets

            command_paths = targets(access.subject, access.cwd, facts)
        last = self._resolved.get(call.id)
        if last is None or (last.access, last.command_paths) != (access, command_paths):
            root = facts.movable_root
            hash_ = fingerprint(call, access, command_paths, root)
            last = self._resolved[call.id] = ResolvedCall(access, command_paths, hash_)
        return last

    def decide(
        self, call_id: str, access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision:
        """Call `permissions.decide`, or return its last result if the inputs are the same.

        The function is pure except for the links that it follows, and those are followed
        again each time.
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
