"""Checkpoints of files, and the points of the session to which a user can rewind.

A checkpoint names one snapshot for each root of the workspace. This state has only the ids of
snapshots; `place.port.Snapshots` stores the files. Rewinding the conversation does not change
this state, because it does not undo changes to files.
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
    """A file that the user put into the workspace with event `seq`.

    Files that were uploaded for one message have the same `batch`: the checkpoint before the
    first upload for that message.
    """

    path: str
    seq: int
    batch: int


class RewindTarget(Struct, frozen=True):
    """A message or a rewind: the user can rewind the session to just before this event."""

    seq: int
    at: float
    kind: Literal["said", "rewound", "restored"]
    text: str = ""  # the beginning of the message
    to: int = 0  # the target of a rewind


class Checkpoints(Struct, frozen=True):
    """The checkpoints of the current `directory`.

    `points` are the rewind targets, also from other directories.
    """

    directory: str = ""
    checkpoints: Log[Checkpoint] = field(default_factory=Log[Checkpoint])
    restored: Log[int] = field(default_factory=Log[int])  # the seqs of `FilesRestored`
    disturbed: bool = False  # a call or a restore came after the newest checkpoint
    # After the newest checkpoint, files may have changed in an unknown way.
    doubtful: bool = False
    # The checkpoint before the uploads for the next message, or 0.
    before_upload: int = 0
    # Messages with uploads, and the checkpoint before the uploads of each.
    uploaded: Log[tuple[int, int]] = field(default_factory=Log[tuple[int, int]])
    uploads: Log[UploadedFile] = field(default_factory=Log[UploadedFile])
    points: Log[RewindTarget] = field(default_factory=Log[RewindTarget])
    # The state for earlier working directories, for the case that the session returns to
    # one.
    elsewhere: "tuple[Checkpoints, ...]" = ()

    @property
    def newest(self) -> Checkpoint:
        return self.checkpoints[-1] if self.checkpoints else Checkpoint(seq=0, trees=())

    @property
    def seq(self) -> int:
        return self.newest.seq

    @property
    def follows_rewind(self) -> bool:
        """Whether the newest checkpoint is the first one after files were restored."""
        before = self.checkpoints[-2].seq if len(self.checkpoints) > 1 else 0
        return bool(self.restored) and before < self.restored[-1] < self.seq

    @property
    def trees(self) -> tuple[tuple[str, str], ...]:
        """The snapshots of the newest checkpoint."""
        return self.newest.trees

    def at(self, seq: int) -> Checkpoint | None:
        """Return the checkpoint with the files as they were just before event `seq`.

        For a message with uploaded files, that is the checkpoint before the first upload.
        Otherwise it is the next checkpoint, because each checkpoint is made just before files
        change. But if files were restored before the next checkpoint, it is the checkpoint that
        was made before they were restored. Returns None if the files have not changed since
        event `seq`.
        """
        wanted_seq = seq
        upload_index = bisect_left(self.uploaded, seq, key=_message_seq)
        if upload_index < len(self.uploaded):
            message_seq, checkpoint_seq = self.uploaded[upload_index]
            if message_seq == seq:
                wanted_seq = checkpoint_seq
        next_index = bisect_left(self.checkpoints, wanted_seq, key=_seq)
        has_next = next_index < len(self.checkpoints)
        following = self.checkpoints[next_index] if has_next else None
        if next_index == 0 or (following and following.seq == wanted_seq):
            return following
        previous = self.checkpoints[next_index - 1]
        restore_index = bisect_right(self.restored, previous.seq)
        if restore_index < len(self.restored):
            restore_seq = self.restored[restore_index]
            comes_first = following is None or restore_seq < following.seq
            if wanted_seq <= restore_seq and comes_first:
                return previous
        return following

    def untouched_directories(self, seq: int) -> tuple[str, ...]:
        """Return the other directories in which checkpoints were made after `seq`.

        A rewind does not restore their files.
        """
        others = self.elsewhere
        return tuple(other.directory for other in others if other.seq > seq)


def apply(state: Checkpoints, entry: Entry) -> Checkpoints:
    """Return the checkpoints after this entry. An event of another kind changes nothing."""
    match entry.event:
        case Checkpointed(trees):
            checkpoints = state.checkpoints.plus(Checkpoint(entry.seq, trees))
            return replace(state, checkpoints=checkpoints, disturbed=False, doubtful=False)
        case Imported(directory=directory):  # its snapshots and files were not imported
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
    """Return the state after a call began or a file was uploaded."""
    if isinstance(event, Started):
        # To restore the files from before the uploads would now undo this call, too. So the
        # uploads no longer belong to the next message.
        return replace(state, disturbed=True, before_upload=0)
    batch = state.before_upload or event.checkpoint
    uploads = state.uploads.plus(UploadedFile(event.path, seq, batch))
    return replace(state, disturbed=True, before_upload=batch, uploads=uploads)


def _with_restore(state: Checkpoints, entry: Entry, checkpoint: int) -> Checkpoints:
    """Return the state after the files were restored to those of `checkpoint`."""
    target = RewindTarget(entry.seq, entry.at, "restored", to=checkpoint)
    return replace(
        state,
        restored=state.restored.plus(entry.seq),
        points=state.points.plus(target),
        disturbed=True,
        doubtful=True,
    )


def _with_point(state: Checkpoints, entry: Entry, event: Said | Rewound) -> Checkpoints:
    """Return the state with a new rewind target.

    Files that were uploaded before a message of the user belong to that message.
    """
    state = replace(state, points=state.points.plus(_point(entry, event)))
    is_from_user = isinstance(event, Said) and event.sender == "person"
    if not is_from_user or not state.before_upload:
        return state
    uploaded = state.uploaded.plus((entry.seq, state.before_upload))
    return replace(state, uploaded=uploaded, before_upload=0)


def _point(entry: Entry, event: Said | Rewound) -> RewindTarget:
    """Return the rewind target for a message or a rewind."""
    if isinstance(event, Rewound):
        return RewindTarget(entry.seq, entry.at, "rewound", to=event.mark)
    return RewindTarget(
        entry.seq, entry.at, "said", (event.typed or event.text)[:_EXCERPT_CHARS]
    )


def _with_directory(state: Checkpoints, directory: str) -> Checkpoints:
    """Return the state of `directory`, and keep that of the directory that is left."""
    if directory == state.directory:
        return state
    # The rewind targets are those of all directories, so they move on with the session.
    current = replace(state, points=Log[RewindTarget](), elsewhere=())
    states = {other.directory: other for other in (*state.elsewhere, current)}
    target = states.pop(directory, Checkpoints(directory))
    others = tuple(other for other in states.values() if other.checkpoints)
    return replace(target, points=state.points, elsewhere=others)


def _seq(checkpoint: Checkpoint) -> int:
    return checkpoint.seq


def _message_seq(uploaded: tuple[int, int]) -> int:
    return uploaded[0]
