"""Money: a budget, and what is set aside for models that are asked beside the talk.

Part of `events`, whose rules hold here too.
"""

from msgspec import Struct

from refold.values.usage import NO_LIMIT, Budget, Usage


class Reserved(Struct, frozen=True):
    """A model is asked beside the talk, and so much is set aside for it."""

    purpose: str  # "summary", "memory", "title", "leaf"
    model: str
    dollars: float | None = None  # None: the price is not known
    tokens: int = 0
    # Of a leaf: its number in this session, the call whose code asks, what makes it the
    # same question (a hash, and how often that was asked before), and its first words.
    leaf: int = 0
    call_id: str = ""
    key: str = ""
    n: int = 0
    prompt: str = ""


class Settled(Struct, frozen=True):
    """What that came to. `failed` says why nothing came of it."""

    reserved: int  # the seq of the `Reserved`
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    failed: str = ""
    # Of a leaf: what it answered, or the blob that holds it; and whether nobody had to be
    # asked, for the answer was remembered.
    text: str = ""
    full_blob: str = ""
    cached: bool = False


class BudgetSet(Struct, frozen=True):
    """What a turn may use up, from now on in this session. Said by a person, or by a parent.

    `last`: whoever gave it has no more to give; `left` is the share of theirs that is left.
    """

    budget: Budget = NO_LIMIT
    final: bool = False
    share_left: float = 1.0


class StepLimitSet(Struct, frozen=True):
    """So many answers one turn may have, from now on in this session. Said by a person."""

    steps: int = 0  # 0: as the settings say
