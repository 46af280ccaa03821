"""The differences that a replay reports, and how two events compare.

`IGNORED_FIELDS` lists what legitimately differs between two runs of the same code.
"""

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.journal.events import codec
from refold.journal.events.kinds import Compacted, Event, Judged
from refold.values.secret_mask import has_mask
from refold.values.text import clean_struct

# Times, epochs and hashes of lines are the envelope's, and never compared. Of events:
IGNORED_FIELDS: Mapping[str, frozenset[str]] = {
    # Prices change, and the loop does not set them.
    "ModelAsked": frozenset({"dollars"}),
    # Where links lead depends on the disk. A verdict on another file than then is not
    # compared at all; the hash covers the other names in a call.
    "Judged": frozenset({"real_path", "hash", "changes"}),
}
KIND, BY, POLICY = "kind", "by", "policy "
Found: TypeAlias = tuple[str, object, object]  # a field, and both values


class Divergence(Struct, frozen=True):
    """Event `seq`, of step `step` of its turn, would be different now.

    `field` is where the two differ; "kind" means another kind of event, "by" another
    policy.
    """

    seq: int
    turn: int
    step: int
    event: str
    field: str
    then: object
    now: object


class Replayed(Struct, frozen=True):
    """`checked` events were computed again, in `steps` responses; `divergences` differ.

    `briefings` says how the system prompt would differ: sentences.
    """

    steps: int
    checked: int
    divergences: tuple[Divergence, ...] = ()
    briefings: tuple[tuple[int, str], ...] = ()


def to_plain(event: Event) -> dict[str, object]:
    """Convert an event to the plain values that a journal stores."""
    data = codec.dump(clean_struct(event))
    return cast("dict[str, object]", msgspec.json.decode(data))


def difference_or_none(
    recorded: Event, replayed: Event | None, instead: str
) -> Found | None:
    """Like `difference`; `instead` names what happens now if there is no such event."""
    if replayed is None:
        return KIND, codec.kind_of(recorded), instead
    return difference(recorded, replayed)


def difference(recorded: Event, replayed: Event) -> Found | None:
    """The first field in which two events differ, and both values."""
    kind, replayed_kind = codec.kind_of(recorded), codec.kind_of(replayed)
    if kind != replayed_kind:
        return (
            KIND,
            kind,
            f"{replayed_kind} {msgspec.json.encode(to_plain(replayed)).decode()}",
        )
    if _leads_elsewhere(recorded, replayed):
        return None
    was, would_be = to_plain(recorded), to_plain(replayed)
    ignored = IGNORED_FIELDS.get(kind, frozenset[str]())
    if isinstance(recorded, Compacted) and has_mask(recorded.summary):
        ignored = ignored | {"after"}  # counted before a secret was masked
    for field in {**was, **would_be}:
        if field not in ignored and was.get(field) != would_be.get(field):
            return field, was.get(field), would_be.get(field)
    return None


def _leads_elsewhere(recorded: Event, replayed: Event) -> bool:
    match recorded, replayed:
        case Judged(real_path=was), Judged(real_path=is_):
            return was != is_
        case _:
            return False
