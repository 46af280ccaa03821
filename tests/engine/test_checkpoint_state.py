"""The checkpoints in the state: which one has the files as they were at an event."""

import pytest

from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    Event,
    FilesRestored,
    Rewound,
    Said,
    SessionResumed,
    SessionStarted,
    Started,
)
from refold.journal.state.checkpoints import Checkpoint, Checkpoints
from refold.journal.state.fold import fold

A, B, C = ((("/w", name),) for name in "abc")
STORY: tuple[Event, ...] = (
    Said("first"),  # 1
    Started("one"),  # 2: it is about to change files
    Checkpointed(A),  # 3: this is before that
    Ended("one", "done", ""),  # 4
    Checkpointed(B),  # 5: and after
    Said("second"),  # 6
    Started("two"),  # 7
    Checkpointed(B),  # 8: the same, before the next work
    Ended("two", "done", ""),  # 9
    Checkpointed(C),  # 10
    Said("third"),  # 11
    Started("looks only"),  # 12
    Ended("looks only", "done", ""),  # 13
)


def fold_checkpoints(*events: Event) -> Checkpoints:
    return fold(Entry(seq, event) for seq, event in enumerate(events, start=1)).checkpoints


@pytest.mark.parametrize(
    ("seq", "made"),
    [(1, 3), (2, 3), (3, 3), (4, 5), (5, 5), (6, 8), (7, 8), (9, 10), (10, 10)],
)
def test_each_event_maps_to_the_checkpoint_of_its_time(seq: int, made: int) -> None:
    checkpoint = fold_checkpoints(*STORY).at(seq)

    assert checkpoint is not None
    assert checkpoint.seq == made


@pytest.mark.parametrize("seq", [11, 12, 13])
def test_event_after_the_newest_checkpoint_has_no_checkpoint(seq: int) -> None:
    assert fold_checkpoints(*STORY).at(seq) is None


def test_session_without_checkpoints_finds_no_checkpoint() -> None:
    checkpoints = fold_checkpoints(Said("first"))

    assert (checkpoints.at(1), checkpoints.trees, checkpoints.seq) == (None, (), 0)


def test_newest_checkpoint_is_the_last_recorded_state() -> None:
    checkpoints = fold_checkpoints(*STORY[:10])

    assert (checkpoints.newest, checkpoints.disturbed) == (Checkpoint(10, C), False)


@pytest.mark.parametrize(
    ("event", "known"),
    [
        (Started("one"), (True, False)),
        (Ended("one", "done", ""), (False, False)),
        (Ended("one", "unknown", ""), (False, True)),
        (FilesRestored(3, 10, 1), (True, True)),
        (Checkpointed(A), (False, False)),
    ],
)
def test_an_event_after_a_checkpoint_sets_whether_files_changed_or_may_have_changed(
    event: Event, known: tuple[bool, bool]
) -> None:
    checkpoints = fold_checkpoints(*STORY[:10], event)

    assert (checkpoints.disturbed, checkpoints.doubtful) == known


def test_rewind_is_undone_to_the_checkpoint_just_before_it() -> None:
    back = (Checkpointed(C), Rewound(6), FilesRestored(3, 11, 1), Checkpointed(A))

    checkpoints = fold_checkpoints(*STORY[:10], *back)

    assert [checkpoints.at(seq) for seq in (11, 12, 13, 14)] == [
        Checkpoint(11, C),
        Checkpoint(11, C),
        Checkpoint(11, C),
        Checkpoint(14, A),
    ]


THERE = SessionResumed(directory="/there")
BACK = SessionResumed(directory="/w")


def test_checkpoints_of_another_directory_are_not_used() -> None:
    checkpoints = fold_checkpoints(SessionStarted("/w"), *STORY[:10], THERE)

    assert (checkpoints.directory, checkpoints.trees, checkpoints.at(1), checkpoints.disturbed) == (
        "/there", (), None, False,
    )  # fmt: skip
    assert (
        checkpoints.untouched_directories(10),
        checkpoints.untouched_directories(11),
    ) == (
        ("/w",),
        (),
    )
    assert [point.text for point in checkpoints.points] == ["first", "second"]


def test_checkpoints_are_known_again_after_returning_to_their_directory() -> None:
    before = fold_checkpoints(SessionStarted("/w"), *STORY)

    checkpoints = fold_checkpoints(
        SessionStarted("/w"), *STORY, THERE, Checkpointed(A), BACK
    )

    assert (checkpoints.trees, checkpoints.disturbed, checkpoints.at(2)) == (
        C,
        True,
        before.at(2),
    )
    assert (
        checkpoints.untouched_directories(2),
        checkpoints.untouched_directories(16),
    ) == (
        ("/there",),
        (),
    )


def test_additional_directories_do_not_change_the_checkpoints() -> None:
    more = SessionResumed(roots=("/more",))

    assert fold_checkpoints(SessionStarted("/w"), *STORY, more, BACK) == fold_checkpoints(
        SessionStarted("/w"), *STORY
    )
