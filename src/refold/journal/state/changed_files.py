"""Which files were changed in this session, by calls and by commands. Never rewinds.

What became of them in one turn is that turn's; how they were before is `saved`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events.kinds import Checkpointed, Ended, Entry
from refold.values.display import Diff

HEARS = (Ended, Checkpointed)
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ChangedFiles(Struct, frozen=True):
    """`files`: real path to "created", "changed" or "deleted", in the order of first change."""

    files: Mapping[str, str] = _NOTHING


def apply(changes: ChangedFiles, entry: Entry) -> ChangedFiles:
    match entry.event:
        case Ended(shown=shown) if shown:
            news = [(d.path, d.kind) for d in shown if isinstance(d, Diff)]
        case Checkpointed(changed=changed):
            news = list(changed)
        case _:
            return changes
    return ChangedFiles(merged(changes.files, news)) if news else changes


def merged(before: Mapping[str, str], news: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """What files have become, all in all."""
    if not news:
        return before
    changed = {**before}
    for path, kind in news:
        # A file created and then changed was, all in all, created.
        new = changed.get(path) == "created" and kind == "changed"
        changed[path] = "created" if new else kind
    return changed
