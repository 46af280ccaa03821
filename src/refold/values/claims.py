"""Claims, their evidence, and the verdict on each. Values only."""

from typing import Literal, TypeAlias

from msgspec import Struct

# What the journal says of a claim. "stale": it confirmed the claim before something changed.
# "unknown": it says nothing about the claim.
State: TypeAlias = Literal["supported", "contradicted", "stale", "unknown"]
WORST_FIRST: tuple[State, ...] = ("contradicted", "stale", "unknown", "supported")


# The docstrings of `Evidence` and `Claim` are sent to models, in the schema of the tool `claim`.
class Evidence(Struct, frozen=True):
    """One piece of evidence for a claim.

    `quote` is text that `path` has word for word at `lines` ("12" or "12-20"), or that `call`
    printed: a command line as it was run, or the id of a call. With `changed`, the evidence is
    that this session changed `path`, and with `nothing`, that `call` found nothing.
    """

    path: str = ""
    lines: str = ""
    quote: str = ""
    call: str = ""
    changed: bool = False
    nothing: bool = False


class Claim(Struct, frozen=True):
    """A claim. With `required`, an answer is unreliable unless this claim is supported."""

    claim: str
    evidence: tuple[Evidence, ...] = ()
    required: bool = False


class Finding(Struct, frozen=True):
    """The result of checking one piece of evidence, with the reason."""

    state: State
    reason: str


class CheckedClaim(Struct, frozen=True):
    """A claim, with one finding for each piece of its evidence, in the order of the
    evidence.
    """

    claim: Claim
    state: State
    reason: str
    findings: tuple[Finding, ...] = ()

    @property
    def is_reliable(self) -> bool:
        """Whether an answer with this claim can be relied on."""
        lacks_support = self.claim.required and self.state != "supported"
        return self.state != "contradicted" and not lacks_support


def worst(*findings: Finding) -> Finding:
    """Return the worst finding, which decides about a claim: all of its evidence must be
    right.
    """
    return min(findings, key=lambda finding: WORST_FIRST.index(finding.state))
