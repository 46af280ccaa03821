"""A conversation that cannot fit its model is not sent there.

The estimate is low on purpose: six characters a token, where real words have
about four. What is refused here would have been refused anyway, after it had been
sent; what is doubtful the provider decides.
"""

from refold.engine.decide import EndTurn, Policy
from refold.journal.fold import View

CHARACTERS = 6  # of a token, at most, for nearly any text
A_PICTURE = 60  # tokens at least, however small it is


def in_window(shorter: Policy) -> Policy:
    """`shorter` may still tell the talk shorter; before it has tried, nothing ends."""

    def window(view: View) -> EndTurn | None:
        end = _too_long(view)
        return end if end is not None and shorter(view) is None else None

    return window


def _too_long(view: View) -> EndTurn | None:
    talk = view.talk
    briefed = talk.briefed
    if not briefed.window or talk.calls or not talk.messages:
        return None
    if talk.unheard and not view.turn.steps:
        return None  # a turn that ended before it heard its words would begin again
    tokens = (talk.size + talk.told) // CHARACTERS + A_PICTURE * len(talk.pictures)
    if tokens <= briefed.window or talk.messages[-1].message.role == "assistant":
        return None
    return EndTurn(
        "failed",
        f"the conversation is at least {tokens:,} tokens and {briefed.model} reads "
        f"{briefed.window:,}: nothing was sent; choose a model that reads more "
        "(/model, -m), or begin a new session",
    )
