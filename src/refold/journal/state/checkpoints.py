"""Checkpoints of files, and the points of the session that a user can rewind to.

Only the ids of snapshots are here; `place.port.Snapshots` stores the files. Rewinding the
conversation does not change this state, because the files did change.
"""

from bisect import bisect_left, bisect_right
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    FilesRestored,
    FileUploaded,
    Imported,
    PlaceRebuilt,
    Rewound,
    Said,
    SessionResumed,
    SessionStarted,
    Started,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.values.growing import Log

EVENT_KINDS = (
    Checkpointed, FilesRestored, Started, Ended, Said, Rewound, Imported, SessionStarted,
    SessionResumed, WorktreeEntered, WorktreeLeft, FileUploaded, PlaceRebuilt,
)  # fmt: skip
_EXCERPT_CHARS = 300  # characters of a message, to recognize it


class Checkpoint(Struct, frozen=True):
    """The files at event `seq`: for each root its snapshot."""

    seq: int
    trees: tuple[tuple[str, str], ...]


class UploadedFile(Struct, frozen=True):
    """The user put it into the workspace with event `seq`. Files that were uploaded for one
    message have the same `batch`, the checkpoint before the first of them.
    """

    path: str
    seq: int
    batch: int


class RewindTarget(Struct, frozen=True):
    """A message or a rewind. The user can go back to the state before it."""

    seq: int
    at: float
    kind: Literal["said", "rewound", "restored"]
    text: str = ""  # the beginning of the message
    to: int = 0  # the target of a rewind


class Checkpoints(Struct, frozen=True):
    """Checkpoints of the current `directory`; `points` are those of the whole session."""

    directory: str = ""
    checkpoints: Log[Checkpoint] = field(default_factory=Log[Checkpoint])
    restored: Log[int] = field(default_factory=Log[int])  # the seqs of `FilesRestored`
    disturbed: bool = False  # a call or a restore followed the newest checkpoint
    doubtful: bool = False  # files may have changed in an unknown way since
    # The checkpoint before the files that were uploaded for the next message, or 0.
    before_upload: int = 0
    # Messages with such files, and that checkpoint.
    uploaded: Log[tuple[int, int]] = field(default_factory=Log[tuple[int, int]])
    uploads: Log[UploadedFile] = field(default_factory=Log[UploadedFile])
    points: Log[RewindTarget] = field(default_factory=Log[RewindTarget])
    # The state for earlier working directories, in case the session returns to one.
    elsewhere: "tuple[Checkpoints, ...]" = ()

    @property
    def newest(self) -> Checkpoint:
        return self.checkpoints[-1] if self.checkpoints else Checkpoint(0, ())

    @property
    def seq(self) -> int:
        return self.newest.seq

    @property
    def trees(self) -> tuple[tuple[str, str], ...]:
        """The snapshots of the newest checkpoint."""
        return self.newest.trees

    def at(self, seq: int) -> Checkpoint | None:
        """The checkpoint with the files as they were just before event `seq`.

        Files that were uploaded for a message are part of it. None: there is no later
        checkpoint, so the files have not changed.
        """
        index = bisect_left(self.uploaded, seq, key=_message)
        if index < len(self.uploaded) and self.uploaded[index][0] == seq:
            seq = self.uploaded[index][1]
        after = bisect_left(self.checkpoints, seq, key=_seq)
        later = self.checkpoints[after] if after < len(self.checkpoints) else None
        if after == 0 or (later and later.seq == seq):
            return later
        before = self.checkpoints[after - 1]
        first = bisect_right(self.restored, before.seq)
        # A checkpoint made just before a restore holds until that restore.
        went = any(
            seq <= back and (later is None or back < later.seq)
            for back in self.restored[first : first + 1]
        )
        return before if went else later

    def untouched_directories(self, seq: int) -> tuple[str, ...]:
        """Other directories with checkpoints since `seq`, which a rewind does not touch."""
        return tuple(other.directory for other in self.elsewhere if other.seq > seq)


def apply(state: Checkpoints, entry: Entry) -> Checkpoints:
    match entry.event:
        case Checkpointed(trees):
            checkpoints = state.checkpoints.plus(Checkpoint(entry.seq, trees))
            return replace(state, checkpoints=checkpoints, disturbed=False, doubtful=False)
        case Imported(directory=directory):  # its snapshots and files are not here
            return Checkpoints(directory)
        case Started() | FileUploaded():
            return _with_disturbance(state, entry.seq, entry.event)
        case Ended(outcome="unknown") | PlaceRebuilt():
            return replace(state, doubtful=True)
        case FilesRestored(checkpoint):
            return _with_restore(state, entry, checkpoint)
        case (
            SessionStarted(directory)
            | SessionResumed(directory=directory)
            | WorktreeEntered(directory)
            | WorktreeLeft(directory)
        ):
            return _with_directory(state, directory) if directory else state
        case Said() | Rewound():
            return _with_point(state, entry, entry.event)
        case _:
            return state


def _with_disturbance(
    state: Checkpoints, seq: int, event: Started | FileUploaded
) -> Checkpoints:
    if isinstance(event, Started):  # not only for the next message
        return replace(state, disturbed=True, before_upload=0)
    batch = state.before_upload or event.checkpoint
    uploads = state.uploads.plus(UploadedFile(event.path, seq, batch))
    return replace(state, disturbed=True, before_upload=batch, uploads=uploads)


def _with_restore(state: Checkpoints, entry: Entry, checkpoint: int) -> Checkpoints:
    back = state.restored.plus(entry.seq)
    point = RewindTarget(entry.seq, entry.at, "restored", to=checkpoint)
    result = replace(state, restored=back, disturbed=True, doubtful=True)
    return replace(result, points=state.points.plus(point))


def _with_point(state: Checkpoints, entry: Entry, event: Said | Rewound) -> Checkpoints:
    state = replace(state, points=state.points.plus(_point(entry, event)))
    if not state.before_upload or isinstance(event, Rewound) or event.sender != "person":
        return state
    uploaded = state.uploaded.plus((entry.seq, state.before_upload))
    return replace(state, uploaded=uploaded, before_upload=0)


def _point(entry: Entry, event: Said | Rewound) -> RewindTarget:
    if isinstance(event, Rewound):
        return RewindTarget(entry.seq, entry.at, "rewound", to=event.mark)
    return RewindTarget(
        entry.seq, entry.at, "said", (event.typed or event.text)[:_EXCERPT_CHARS]
    )


def _with_directory(state: Checkpoints, directory: str) -> Checkpoints:
    if directory == state.directory:
        return state
    left = replace(state, points=Log[RewindTarget](), elsewhere=())
    known = {other.directory: other for other in (*state.elsewhere, left)}
    target = known.pop(directory, Checkpoints(directory))
    others = tuple(other for other in known.values() if other.checkpoints)
    return replace(target, points=state.points, elsewhere=others)


def _seq(checkpoint: Checkpoint) -> int:
    return checkpoint.seq


def _message(image_counts: tuple[int, int]) -> int:
    return image_counts[0]
