"""The files that this session has changed, by calls and by commands.

A rewind does not change them.

`turn` has the files of one turn; `checkpoints` has their earlier content.
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
    """Return the changed files after this entry; the same if it changed none."""
    match entry.event:
        case Ended(shown=shown) if shown:
            changes_of_event = [(d.path, d.kind) for d in shown if isinstance(d, Diff)]
        case Checkpointed(changed=changed):
            changes_of_event = list(changed)
        case _:
            return changes
    if not changes_of_event:
        return changes
    return ChangedFiles(merge_changes(changes.files, changes_of_event))


def merge_changes(
    before: Mapping[str, str], changes_of_event: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
    """Return the changes `before`, followed by `changes_of_event`, as one change for each
    file.
    """
    if not changes_of_event:
        return before
    changed = {**before}
    for path, kind in changes_of_event:
        # A file that was created and then changed counts as created.
        is_created = changed.get(path) == "created" and kind == "changed"
        changed[path] = "created" if is_created else kind
    return changed
