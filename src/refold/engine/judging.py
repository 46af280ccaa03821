"""What the rules say of a call: its facts gathered, the session's grants counted in.

The seam asks before a call runs; a door asks which rule it may offer a person, and
a program asks what would happen. All must come to the same answer, so all come here.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Protocol

from msgspec.structs import replace

from refold.journal.fold import View
from refold.permissions.decide import decide
from refold.permissions.facts import Decision, Facts, Target, Touch
from refold.permissions.matching import LEAVE_PLAN
from refold.permissions.rules import Rule, parse
from refold.tools.contract import Tool
from refold.values.confines import Confines
from refold.values.messages import ToolCall
from refold.values.rights import Mode, Verdict
from refold.values.tools import Effect

SESSION = "this session"
# The plan is another's: a child cannot end the planning.
REPORT = "say in your report what should be changed or run"
_STRICT: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


class Grounds(Protocol):
    """What calls are judged by, besides what the session itself knows."""

    @property
    def rules(self) -> Sequence[Rule]: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def facts(self) -> Callable[[], Facts]: ...


class Deciding(Protocol):
    """What `permissions.decide` does, or whoever knows the verdict already."""

    def __call__(
        self, touch: Touch, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision: ...


class Above(Protocol):
    """What a child may not exceed: the rights of its parent, as they are at that moment."""

    def judge(self, found: Touch, facts: Facts) -> Decision: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def granted(self) -> Sequence[str]:
        """What a person allowed for the session of the parent, and for those above it."""
        ...


def touch(tool: Tool, arguments: Mapping[str, object], facts: Facts) -> Touch:
    """What a call would do. Raises `ToolFailed` where its path cannot be one."""
    return followed(described(tool, arguments), facts)


def described(tool: Tool, arguments: Mapping[str, object]) -> Touch:
    """What a call says that it would do: no path of it is followed yet."""
    runs, files = tool.effect is Effect.RUN, tool.names_files(arguments)
    subject = ", ".join(files) if tool.paths else tool.touches(arguments)
    return Touch(
        tool.spec.name,
        tool.effect,
        "" if tool.subject == tool.path else subject,
        tuple(Target(path, "") for path in files),
        str(arguments.get("cwd", "")) if runs else "",
        network=runs and arguments.get("network") is True,
    )


def followed(said: Touch, facts: Facts) -> Touch:
    """Where what was `described` leads now. Raises `ToolFailed` as `touch` does."""
    if not said.files and not said.cwd:
        return said
    files = tuple(Target(each.path, facts.follow(each.path)) for each in said.files)
    return replace(said, files=files, cwd=facts.follow(said.cwd) if said.cwd else "")


def judge(
    found: Touch,
    grounds: Grounds,
    view: View,
    also: Sequence[str] = (),
    above: Above | None = None,
    by: Deciding = decide,
) -> Decision:
    """What holds now. `also` are allow rules that a person might still give.

    `above` is who this session is a child of: it may do no more than that one, and what
    a person allowed there need not be asked here again.
    """
    granted = [*granted_in(view, above), *also]
    rules = [*grounds.rules, *(parse(rule, "allow", SESSION) for rule in granted)]
    facts = grounds.facts()
    own = by(found, mode_of(grounds, view, above), rules, facts)
    if above is None:
        return own
    both = stricter(own, above.judge(found, facts))
    if above.mode != "plan":
        return both
    return replace(both, reason=both.reason.replace(LEAVE_PLAN, REPORT))


def mode_of(grounds: Grounds, view: View, above: Above | None = None) -> Mode:
    """The session's own mode, or that of its parent, or of the settings.

    While its parent plans, so does a child, whatever its own mode is.
    """
    if above is not None and above.mode == "plan":
        return "plan"
    return view.rights.mode or (above.mode if above else grounds.mode)


def granted_in(view: View, above: Above | None = None) -> Sequence[str]:
    """The rules that a person gave for this session, here or to whoever started it."""
    return (*view.rights.granted, *(above.granted if above else ()))


def stricter(own: Decision, other: Decision) -> Decision:
    """What both allow. Where both ask or deny, the reason of the second is the one told."""
    first, second = (
        (other, own) if _STRICT[other.verdict] >= _STRICT[own.verdict] else (own, other)
    )
    mine, theirs = first.confines, second.confines
    both = Confines(
        mine.writes and theirs.writes,
        mine.network and theirs.network,
        tuple(path for path in mine.opened if path in theirs.opened),
        tuple(path for path in mine.seen if path in theirs.seen),
    )
    return replace(first, once=first.once or second.once, confines=both)


def fingerprint(call: ToolCall, found: Touch) -> str:
    """Of the call as the model made it, and of where its paths lead.

    What a person says yes to is exactly this; if it becomes another, they did not.
    """
    parts = (call.name, bytes(call.arguments).decode(), found.cwd, *_leading(found))
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def _leading(found: Touch) -> Sequence[str]:
    return [part for target in found.files for part in (target.path, target.real)]
