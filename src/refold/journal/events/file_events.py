"""Events about the files of the workspace: checkpoints, restored and uploaded files.

`kinds` has all other events, and the union of all; it is what the rest of refold imports.
"""

from msgspec import Struct


class Checkpointed(Struct, frozen=True):
    """A checkpoint of files: for each root of the workspace, its snapshot.

    `left_out` are files that are too large. `changed` are the differences from the
    checkpoint before, as (real path, "created", "changed" or "deleted").
    """

    trees: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()


class FilesRestored(Struct, frozen=True):
    """The files were restored to `checkpoint`. Restoring `before` undoes it."""

    checkpoint: int  # the seq of a `Checkpointed`
    before: int  # the seq of the one that was made just before
    files: int = 0  # number of files that were changed


class FileUploaded(Struct, frozen=True):
    """The user put this file into the workspace. `path` is its real path.

    `checkpoint` has the files before it: rewinding to before the next message restores them.
    """

    path: str
    size: int  # bytes
    sha256: str
    checkpoint: int = 0  # the seq of a `Checkpointed`; 0: no files are checkpointed
