"""May this call run? Pure: everything it needs is handed to it.

The order is fixed, and the first that speaks decides: a deny rule, an ask
rule, the mode, the set of calls that only look, an allow rule; what nobody
spoke for is asked about. Who is asked, and how, is the seam's business.
"""

from collections.abc import Sequence

from msgspec import Struct

from refold.permissions.rules import Rule, covers
from refold.values.rights import Mode, Verdict
from refold.values.tools import Effect


class Touch(Struct, frozen=True):
    """What a call would do, as far as permission is concerned.

    `outside` is the real path of a file outside the workspace, "" for others.
    `real` is what a file is called once links and detours are followed.
    """

    tool: str
    effect: Effect
    subjects: tuple[str, ...] = ()
    outside: str = ""
    real: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The file it is about, links followed; "" for what is about none."""
        return self.outside or (self.real[-1] if self.real else "")


class Decision(Struct, frozen=True):
    verdict: Verdict
    rule: str = ""
    reason: str = ""


def decide(touch: Touch, mode: Mode, rules: Sequence[Rule]) -> Decision:
    for verdict in ("deny", "ask"):
        if found := _first(rules, verdict, touch):
            return Decision(verdict, str(found), _says(found))
    if mode == "bypass":
        return Decision("allow", "", "everything runs unasked in mode bypass")
    inside = not touch.outside
    if mode == "accept-edits" and touch.effect is Effect.CHANGE and inside:
        return Decision("allow", "", "edits run unasked in mode accept-edits")
    if touch.effect is Effect.SELF:
        return Decision("allow", "", "it changes only the session")
    if touch.effect is Effect.LOOK and inside:
        return Decision("allow", "", "it only looks, inside the workspace")
    if found := _first(rules, "allow", touch):
        return Decision("allow", str(found), _says(found))
    if touch.outside:
        return Decision("ask", "", f"{touch.outside} is outside the workspace")
    return Decision("ask", "", f"no rule allows {touch.tool} here")


def _first(rules: Sequence[Rule], verdict: Verdict, touch: Touch) -> Rule | None:
    if verdict != "allow":
        subjects = (*touch.subjects, *touch.real)
    elif touch.outside:
        # A relative pattern was written for the workspace and covers nothing else.
        subjects = (touch.outside,)
    else:  # what is allowed is a file, not a way of writing its name
        subjects = touch.real or touch.subjects
    return next(
        (r for r in rules if r.verdict == verdict and covers(r, touch.tool, subjects)),
        None,
    )


def _says(rule: Rule) -> str:
    where = f" ({rule.source})" if rule.source else ""
    return f"the rule {rule}{where} says {rule.verdict}"
