"""How the files were, by the journal: checkpoints, and the points one can go back to.

The files themselves are kept elsewhere (`place.port.Snapshots`); here are only the names
of their snapshots. Going back in the talk takes none of this back: what was done to
files was done.
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
    Imported,
    Rewound,
    Said,
    SessionResumed,
    SessionStarted,
    Started,
)
from refold.values.growing import Log

HEARS = (
    Checkpointed, FilesRestored, Started, Ended, Said, Rewound, Imported, SessionStarted,
    SessionResumed,
)  # fmt: skip
_WORDS = 300  # of what was said, to know it again by


class Checkpoint(Struct, frozen=True):
    """The files as they were at event `seq`: for each root its snapshot."""

    seq: int
    trees: tuple[tuple[str, str], ...]


class Point(Struct, frozen=True):
    """Somebody spoke, or went back: before that is where one may want to go."""

    seq: int
    at: float
    kind: Literal["said", "rewound", "restored"]
    text: str = ""  # what was said
    to: int = 0  # where it went


class Checkpoints(Struct, frozen=True):
    """Of the files in `directory`, where the session works; `points` are those of all."""

    directory: str = ""
    checkpoints: Log[Checkpoint] = field(default_factory=Log[Checkpoint])
    restored: Log[int] = field(default_factory=Log[int])  # where files went back
    disturbed: bool = False  # has a call begun since the newest, or have files gone back?
    doubtful: bool = False  # may we have changed files since without knowing how?
    points: Log[Point] = field(default_factory=Log[Point])
    # The same of where it worked before. In a directory that it comes back to, it goes on.
    elsewhere: "tuple[Checkpoints, ...]" = ()

    @property
    def newest(self) -> Checkpoint:
        return self.checkpoints[-1] if self.checkpoints else Checkpoint(0, ())

    @property
    def seq(self) -> int:
        return self.newest.seq

    @property
    def trees(self) -> tuple[tuple[str, str], ...]:
        """The files when they were last taken down."""
        return self.newest.trees

    def at(self, seq: int) -> Checkpoint | None:
        """The one that shows the files as they were just before event `seq`.

        None: nobody took them down since, so they are as they were.
        """
        after = bisect_left(self.checkpoints, seq, key=_seq)
        found = self.checkpoints[after] if after < len(self.checkpoints) else None
        if after == 0 or (found and found.seq == seq):
            return found
        before = self.checkpoints[after - 1]
        first = bisect_right(self.restored, before.seq)
        # Made just before files went back, it shows them until they did.
        went = any(
            seq <= back and (found is None or back < found.seq)
            for back in self.restored[first : first + 1]
        )
        return before if went else found

    def stays(self, seq: int) -> tuple[str, ...]:
        """Where else files were taken down since event `seq`: going back leaves them."""
        return tuple(each.directory for each in self.elsewhere if each.seq > seq)


def apply(saved: Checkpoints, entry: Entry) -> Checkpoints:
    match entry.event:
        case Checkpointed(trees):
            made = saved.checkpoints.plus(Checkpoint(entry.seq, trees))
            return replace(saved, checkpoints=made, disturbed=False, doubtful=False)
        case Imported(directory=directory):  # neither its snapshots nor its files are here
            return Checkpoints(directory)
        case Started():
            return saved if saved.disturbed else replace(saved, disturbed=True)
        case Ended(outcome=outcome):
            return replace(saved, doubtful=True) if outcome == "unknown" else saved
        case FilesRestored(checkpoint):
            back = saved.restored.plus(entry.seq)
            point = Point(entry.seq, entry.at, "restored", to=checkpoint)
            found = replace(saved, restored=back, disturbed=True, doubtful=True)
            return replace(found, points=saved.points.plus(point))
        case SessionStarted(directory) | SessionResumed(directory=directory):
            return _in(saved, directory) if directory else saved
        case Said() | Rewound():
            return replace(saved, points=saved.points.plus(_point(entry, entry.event)))
        case _:
            return saved


def _point(entry: Entry, event: Said | Rewound) -> Point:
    if isinstance(event, Rewound):
        return Point(entry.seq, entry.at, "rewound", to=event.mark)
    return Point(entry.seq, entry.at, "said", (event.typed or event.text)[:_WORDS])


def _in(saved: Checkpoints, directory: str) -> Checkpoints:
    if directory == saved.directory:
        return saved
    left = replace(saved, points=Log[Point](), elsewhere=())
    known = {each.directory: each for each in (*saved.elsewhere, left)}
    there = known.pop(directory, Checkpoints(directory))
    others = tuple(each for each in known.values() if each.checkpoints)
    return replace(there, points=saved.points, elsewhere=others)


def _seq(checkpoint: Checkpoint) -> int:
    return checkpoint.seq
