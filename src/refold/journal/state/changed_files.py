"""The files that this session has changed, by calls and by commands. Not rewound.

`turn` has those of one turn; `checkpoints` has the files' earlier content.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events.kinds import Checkpointed, Ended, Entry
from refold.values.display import Diff

EVENT_KINDS = (Ended, Checkpointed)
_NO_FILES: Mapping[str, str] = MappingProxyType({})


class ChangedFiles(Struct, frozen=True):
    """`files` maps each real path to "created", "changed" or "deleted", in the order of first
    change.
    """

    files: Mapping[str, str] = _NO_FILES


def apply(changes: ChangedFiles, entry: Entry) -> ChangedFiles:
    match entry.event:
        case Ended(shown=shown) if shown:
            news = [(d.path, d.kind) for d in shown if isinstance(d, Diff)]
        case Checkpointed(changed=changed):
            news = list(changed)
        case _:
            return changes
    return ChangedFiles(merge_changes(changes.files, news)) if news else changes


def merge_changes(
    before: Mapping[str, str], news: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
    """`before` with the changes `news`, each file with its total change."""
    if not news:
        return before
    changed = {**before}
    for path, kind in news:
        # A file that was created and then changed counts as created.
        new = changed.get(path) == "created" and kind == "changed"
        changed[path] = "created" if new else kind
    return changed
