"""The tool `claim`: records what an agent found, with evidence that can be checked.

The evidence is checked at once, so that the agent can still correct a wrong claim. A claim
never counts as evidence for another claim.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol

from msgspec import Meta

from refold.tools.contract import Reply, tool
from refold.values.claims import CheckedClaim, Claim
from refold.values.control import Claimed
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.tools import Effect

_MAX_NAME_CHARS = 60  # for a claim's name in a list


class Checks(Protocol):
    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        """Check the claims, in order, against the record of this session."""
        ...


@tool(Effect.SELF)
async def claim(
    claims: Annotated[
        tuple[Claim, ...],
        Meta(description="a claim made again in the same words replaces the first"),
    ],
    *,
    checks: Checks,
) -> Reply:
    """State findings with evidence, checked at once against what was read and run here."""
    checked = await checks.check(claims)
    taken = tuple(item.claim for item in checked if item.state != "contradicted")
    rows = [_row(number, item) for number, item in enumerate(checked, 1)]
    summary = f"claimed {len(taken)} of {len(checked)} findings"
    control = Claimed(taken) if taken else None
    return Reply(
        "\n".join(rows) or "Nothing was claimed.", (Note(summary),), control=control
    )


def _row(number: int, checked: CheckedClaim) -> str:
    """Return a line for the model about a checked claim, with advice unless it is supported."""
    name = shorten(" ".join(checked.claim.claim.split()), _MAX_NAME_CHARS)
    advice = {
        "contradicted": " Not accepted: correct it, or leave it out.",
        "stale": " Taken; look again, and claim it again.",
        "unknown": " Taken, but nothing bears it out: give better evidence.",
        "supported": "",
    }
    reason = f"{checked.reason}." if checked.state != "supported" else checked.reason
    return f"{number}. {name}: {checked.state}, {reason}{advice[checked.state]}"
