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
    files = tool.names_files(arguments)
    if tool.subject == tool.path:
        subject = ""  # the call is about its file, which `files` has
    elif tool.paths:
        subject = ", ".join(files)
    else:
        subject = tool.subject_of(arguments)
    unresolved_files = tuple(Target(path, "") for path in files)
    access = Access(tool.name, tool.effect, subject, unresolved_files)
    if tool.effect is not Effect.RUN:
        return access
    # Only tools that run something have a directory, hosts and the network as arguments.
    hosts = _parse_hosts(arguments.get("hosts"))
    return replace(
        access,
        cwd=str(arguments.get("cwd", "")),
        network=arguments.get("network") is True or bool(hosts),
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
    cwd = facts.follow(access.cwd) if access.cwd else ""
    return replace(access, files=files, cwd=cwd)


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
    the parent if the session is a subagent. A subagent may not do more than its parent, and the
    user is not asked again about what the parent may do.
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
    mode = effective_mode(policy_context, view, parent)
    own = decider(access, mode, rules, own_facts)
    if parent is None:
        return own
    both = stricter_decision(own, parent.judge(access, facts))
    if parent.mode != "plan":
        return both
    # The usual reason advises to leave plan mode, but only the parent can do that.
    return replace(both, reason=both.reason.replace(LEAVE_PLAN, REPORT_ADVICE))


def effective_mode(
    policy_context: PolicyContext, view: View, parent: ParentRights | None = None
) -> Mode:
    """Return the mode in which the session works.

    That is the mode chosen in the session. If none is chosen, a subagent has its parent's mode,
    and any other session has the mode of the settings. While its parent is in plan mode, a
    subagent is in plan mode in any case.
    """
    if parent is not None and parent.mode == "plan":
        return "plan"
    if view.rights.mode is not None:
        return view.rights.mode
    return policy_context.mode if parent is None else parent.mode


def session_grants(view: View, parent: ParentRights | None = None) -> Sequence[str]:
    """Return the rules that the user granted for this session or its ancestors."""
    parent_grants = () if parent is None else parent.grants
    return (*view.rights.granted, *parent_grants)


def stricter_decision(first: Decision, second: Decision) -> Decision:
    """Combine two decisions into one that allows only what both allow.

    The decision with the stricter verdict gives the reason. If both verdicts are equal,
    `second` gives the reason.
    """
    stricter, milder = second, first
    if _STRICTNESS_RANK[first.verdict] > _STRICTNESS_RANK[second.verdict]:
        stricter, milder = first, second
    # The text from outside is a reason of the result only if it was one of the stricter verdict.
    is_equally_strict = milder.verdict == stricter.verdict
    outside = stricter.outside or (is_equally_strict and milder.outside)
    return replace(
        stricter,
        once=stricter.once or milder.once,
        outside=outside,
        confines=_stricter_confinement(stricter.confines, milder.confines),
    )


def _stricter_confinement(first: Confinement, second: Confinement) -> Confinement:
    """Return the confinement that permits only what both permit."""
    # None permits every host.
    hosts = second.hosts if first.hosts is None else first.hosts.within(second.hosts)
    return Confinement(
        writes=first.writes and second.writes,
        network=first.network and second.network,
        opened=tuple(path for path in first.opened if path in second.opened),
        seen=tuple(path for path in first.seen if path in second.seen),
        narrow=first.narrow or second.narrow,  # it restricts what may be read
        of_git=_git_paths(first, second),
        hosts=hosts,
    )


def _git_paths(first: Confinement, second: Confinement) -> tuple[str, ...]:
    """Return the paths that both confinements let git write.

    A path that both open for all programs is left out: git may write it anyway.
    """
    first_paths = (*first.opened, *first.of_git)
    second_paths = {*second.opened, *second.of_git}
    for_all_programs = set(first.opened) & set(second.opened)
    for_git_only = second_paths - for_all_programs
    return tuple(path for path in first_paths if path in for_git_only)


def fingerprint(
    call: ToolCall,
    access: Access,
    command_paths: Sequence[str] = (),
    movable_root: str = "",
) -> str:
    """Return a hash of everything that an approval of a call covers.

    An approval covers the call as the model made it, and the targets of its paths and of
    `command_paths`, the paths in its command. It also covers the command line that a tool
    makes, because the file that defines the tool may change while the user thinks. If the
    fingerprint changes, the approval does not apply. `movable_root` is a folder that may be
    moved meanwhile: paths in this folder are taken relative to it.
    """
    parts = [call.name, bytes(call.arguments).decode()]
    parts.append(_relative_paths(movable_root, access.cwd))
    for target in access.files:
        parts.append(_relative_paths(movable_root, target.path))
        parts.append(_relative_paths(movable_root, target.real))
    if movable_root:
        # The paths come in the order of their absolute names, which a move may change.
        parts += sorted(_relative_paths(movable_root, path) for path in command_paths)
    else:
        parts += command_paths
    if access.command:
        parts.append(access.subject)
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def _relative_paths(root: str, paths: str) -> str:
    """Return `paths` with each path in `root` made relative to it, such as "./a.py".

    `paths` is one path, or several paths joined by NUL. If `root` is "", `paths` is unchanged.
    """
    if not root:
        return paths
    relative = list[str]()
    for path in paths.split("\0"):
        if below(path, root):
            path_in_root = path[len(root) :]  # begins with "/"
            relative.append(f".{path_in_root}")
        else:
            relative.append(path)
    return "\0".join(relative)


class PreparedCall(Struct, frozen=True):
    """A call with its tool, its parsed arguments, and what it would access.

    `unresolved` is that access before links are followed.
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
    is_file_tool = tool.dry_run
    if is_file_tool or tool.effect not in (Effect.RUN, Effect.CHANGE):
        return
    command = str(arguments.get("command", "")) if tool.name in COMMAND_TOOLS else ""
    redirects = ">" in command or "<<" in command
    for mask in masks_in(arguments):
        if mask == SECRET_MASK and not redirects:  # it has no tag
            continue
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
        """Return the call with its tool and its parsed arguments.

        Raises `ToolFailed` for invalid arguments.
        """
        prepared = self._prepared.get(call.id)
        if prepared is None or prepared.tool is not tool or prepared.call != call:
            self.drop(call.id)
            arguments = tool.parse(call.arguments)
            check_masks(tool, arguments)
            unresolved = access_from_arguments(tool, arguments)
            prepared = PreparedCall(call, tool, arguments, unresolved)
            self._prepared[call.id] = prepared
            if len(self._prepared) > _MAX_PREPARED_CALLS:
                oldest_id = next(iter(self._prepared))
                self.drop(oldest_id)
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
        now = (access, command_paths)
        if last is not None and (last.access, last.command_paths) == now:
            return last
        hash_ = fingerprint(call, access, command_paths, facts.movable_root)
        resolved = ResolvedCall(access, command_paths, hash_)
        self._resolved[call.id] = resolved
        return resolved

    def decide(
        self, call_id: str, access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision:
        """Call `permissions.decide`, or return its last result if the inputs are the same.

        `permissions.decide` is pure except for the links that it follows, so these links are
        followed again each time.
        """
        last = self._verdicts.get(call_id)
        inputs = (access, mode, rules, facts)
        if last is not None and (last.access, last.mode, last.rules, last.facts) == inputs:
            links = last.link_targets.items()
            if all(facts.follow(path) == target for path, target in links):
                return last.decision
        from refold.permissions.decide import decide

        link_targets: dict[str, str] = {}

        def follow(path: str) -> str:
            """Follow the links of a path, and remember their target."""
            real = facts.follow(path)
            link_targets[path] = real
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
