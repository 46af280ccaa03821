"""The differences that a replay reports, and how two events are compared.

`IGNORED_FIELDS` lists the fields that may differ between two runs of the same code.
"""

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.journal.events import codec
from refold.journal.events.kinds import Compacted, Event, Judged
from refold.values.secret_mask import has_mask
from refold.values.text import clean_struct

# Times, epochs and hashes of lines are in the envelope, and never compared. Event fields:
IGNORED_FIELDS: Mapping[str, frozenset[str]] = {
    # Prices change, and the loop does not set them.
    "ModelAsked": frozenset({"dollars"}),
    # The targets of links depend on the disk. A verdict on a different file is not compared
    # at all; the hash covers the other names in a call.
    "Judged": frozenset({"real_path", "hash", "changes"}),
}
KIND, BY, POLICY = "kind", "by", "policy "
# The name of a field, with its recorded and its new value.
FieldDifference: TypeAlias = tuple[str, object, object]


class Divergence(Struct, frozen=True):
    """Event `seq`, of step `step` of its turn, would be different now.

    `field` is the field that differs. "kind" means that the kind of event differs, and "by"
    means that the policy differs.
    """

    seq: int
    turn: int
    step: int
    event: str
    field: str
    then: object
    now: object


class Replayed(Struct, frozen=True):
    """The result of a replay: `checked` events of `steps` responses were computed again.

    `divergences` lists the differences. `briefings` has sentences about the differences of
    the system prompt.
    """

    steps: int
    checked: int
    divergences: tuple[Divergence, ...] = ()
    briefings: tuple[tuple[int, str], ...] = ()


def to_plain(event: Event) -> dict[str, object]:
    """Return an event as the plain values that a journal stores."""
    data = codec.dump(clean_struct(event))
    return cast("dict[str, object]", msgspec.json.decode(data))


def difference_or_none(
    recorded: Event, replayed: Event | None, instead: str
) -> FieldDifference | None:
    """Return the first difference between two events, or None if they are equal.

    If `replayed` is None, the difference is that `instead` would happen now.
    """
    if replayed is None:
        return KIND, codec.kind_of(recorded), instead
    return difference(recorded, replayed)


def difference(recorded: Event, replayed: Event) -> FieldDifference | None:
    """Return the first field in which two events differ, or None if they are equal."""
    kind, replayed_kind = codec.kind_of(recorded), codec.kind_of(replayed)
    if kind != replayed_kind:
        return (
            KIND,
            kind,
            f"{replayed_kind} {msgspec.json.encode(to_plain(replayed)).decode()}",
        )
    if _judged_other_file(recorded, replayed):
        return None
    was, would_be = to_plain(recorded), to_plain(replayed)
    ignored = IGNORED_FIELDS.get(kind, frozenset[str]())
    if isinstance(recorded, Compacted) and has_mask(recorded.summary):
        ignored = ignored | {"after"}  # characters are counted before a secret is masked
    for field in {**was, **would_be}:
        if field not in ignored and was.get(field) != would_be.get(field):
            return field, was.get(field), would_be.get(field)
    return None


def _judged_other_file(recorded: Event, replayed: Event) -> bool:
    """Whether the path of a call leads to another file now, because of a link."""
    match recorded, replayed:
        case Judged(real_path=was), Judged(real_path=is_):
            return was != is_
        case _:
            return False
