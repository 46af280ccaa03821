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


def saved(*events: Event) -> Checkpoints:
    return fold(Entry(seq, event) for seq, event in enumerate(events, start=1)).checkpoints


@pytest.mark.parametrize(
    ("seq", "made"),
    [(1, 3), (2, 3), (3, 3), (4, 5), (5, 5), (6, 8), (7, 8), (9, 10), (10, 10)],
)
def test_an_event_finds_the_checkpoint_of_its_time(seq: int, made: int) -> None:
    found = saved(*STORY).at(seq)

    assert found is not None
    assert found.seq == made


@pytest.mark.parametrize("seq", [11, 12, 13])
def test_event_after_the_newest_checkpoint_has_no_checkpoint(seq: int) -> None:
    assert saved(*STORY).at(seq) is None


def test_without_checkpoints_there_is_nothing_to_find() -> None:
    found = saved(Said("first"))

    assert (found.at(1), found.trees, found.seq) == (None, (), 0)


def test_the_newest_is_what_was_last_known() -> None:
    found = saved(*STORY[:10])

    assert (found.newest, found.disturbed) == (Checkpoint(10, C), False)


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
def test_events_after_a_checkpoint_update_disturbed_and_doubtful(
    event: Event, known: tuple[bool, bool]
) -> None:
    found = saved(*STORY[:10], event)

    assert (found.disturbed, found.doubtful) == known


def test_going_back_itself_is_undone_to_the_checkpoint_just_before() -> None:
    back = (Checkpointed(C), Rewound(6), FilesRestored(3, 11, 1), Checkpointed(A))

    found = saved(*STORY[:10], *back)

    assert [found.at(seq) for seq in (11, 12, 13, 14)] == [
        Checkpoint(11, C),
        Checkpoint(11, C),
        Checkpoint(11, C),
        Checkpoint(14, A),
    ]


THERE = SessionResumed(directory="/there")
BACK = SessionResumed(directory="/w")


def test_checkpoints_of_another_directory_are_not_used() -> None:
    found = saved(SessionStarted("/w"), *STORY[:10], THERE)

    assert (found.directory, found.trees, found.at(1), found.disturbed) == (
        "/there", (), None, False,
    )  # fmt: skip
    assert (found.untouched_directories(10), found.untouched_directories(11)) == (
        ("/w",),
        (),
    )
    assert [point.text for point in found.points] == ["first", "second"]


def test_in_a_directory_that_it_comes_back_to_it_knows_again_what_it_knew() -> None:
    before = saved(SessionStarted("/w"), *STORY)

    found = saved(SessionStarted("/w"), *STORY, THERE, Checkpointed(A), BACK)

    assert (found.trees, found.disturbed, found.at(2)) == (C, True, before.at(2))
    assert (found.untouched_directories(2), found.untouched_directories(16)) == (
        ("/there",),
        (),
    )


def test_other_directories_beside_the_same_one_change_nothing() -> None:
    more = SessionResumed(roots=("/more",))

    assert saved(SessionStarted("/w"), *STORY, more, BACK) == saved(
        SessionStarted("/w"), *STORY
    )
