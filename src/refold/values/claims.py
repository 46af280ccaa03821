"""Claims, the evidence they name, and the verdict on each. Values only."""

from typing import Literal, TypeAlias

from msgspec import Struct

# The record confirms it; contradicts it; confirmed it before things changed; or says
# nothing about it.
State: TypeAlias = Literal["supported", "contradicted", "stale", "unknown"]
WORST_FIRST: tuple[State, ...] = ("contradicted", "stale", "unknown", "supported")


class Evidence(Struct, frozen=True):
    """`quote` is word for word in `path`, at `lines` ("12" or "12-20"), or was printed by
    `call`: a command line as it was run, or its id. Or `path` was `changed` in this
    session, or `call` found `nothing`.
    """

    path: str = ""
    lines: str = ""
    quote: str = ""
    call: str = ""
    changed: bool = False
    nothing: bool = False


class Claim(Struct, frozen=True):
    """`required`: an answer with this one unsupported is not to be relied on."""

    claim: str
    evidence: tuple[Evidence, ...] = ()
    required: bool = False


class Finding(Struct, frozen=True):
    """The result of checking one piece of evidence, and why."""

    state: State
    reason: str


class CheckedClaim(Struct, frozen=True):
    """A claim with the findings on each piece of its evidence, in the same order."""

    claim: Claim
    state: State
    reason: str
    findings: tuple[Finding, ...] = ()

    @property
    def is_reliable(self) -> bool:
        """Whether an answer with this claim can be relied on."""
        required = self.claim.required and self.state != "supported"
        return self.state != "contradicted" and not required


def worst(*findings: Finding) -> Finding:
    """The worst of these findings, which decides: all evidence has to hold."""
    return min(findings, key=lambda finding: WORST_FIRST.index(finding.state))
