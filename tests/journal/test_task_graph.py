"""The rules of the task board, and its fold."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import BadInput
from refold.journal.board.task_graph import (
    MAX_NOTES_BYTES,
    MAX_OPEN_TASKS,
    PERSON_NAME,
    Board,
    BoardEvent,
    TaskUpdated,
    fold_board,
)
from refold.values.control import BoardTask, NewTask, TaskChange


def board(*tasks: NewTask) -> Board:
    task_board = Board()
    for task in tasks:
        task_board = apply_events(task_board, task_board.addition(task))
    return task_board


def apply_events(board: Board, *events: BoardEvent | None) -> Board:
    return fold_board(board, [event for event in events if event is not None])


def change_task(board: Board, id_: int, change: TaskChange, author: str = "ann") -> Board:
    return apply_events(board, board.update(id_, change, author))


# An order: the operation, the task, the other tasks, and the author.
IDS = st.integers(1, 6)
ORDERS = st.lists(
    st.tuples(
        st.sampled_from(["add", "block", "claim", "next", "done", "pending", "cancelled"]),
        IDS,
        st.lists(IDS, max_size=3).map(tuple),
        st.sampled_from(["ann", "bob", PERSON_NAME]),
    ),
    max_size=40,
)


def event_of(
    board: Board, order: tuple[str, int, tuple[int, ...], str], key: str
) -> BoardEvent | None:
    """Return the event of an order; None where it is refused."""
    kind, id_, others, who = order
    try:
        match kind:
            case "add":
                return board.addition(NewTask("it", blocked_by=others), key)
            case "block":
                return board.update(id_, TaskChange(blocked_by=others), who)
            case "claim":
                return board.claim(id_, who, key)
            case "next":
                return board.claim(0, who, key)
            case "done" | "pending" | "cancelled":
                return board.update(id_, TaskChange(status=kind), who)
            case _:
                raise AssertionError(kind)
    except BadInput:
        return None


def has_a_cycle(tasks: Sequence[BoardTask]) -> bool:
    """Find a cycle: remove unblocked tasks until none is left or nothing changes."""
    left = {task.id: set(task.blocked_by) for task in tasks}
    while free := [id_ for id_, others in left.items() if not others & left.keys()]:
        for id_ in free:
            del left[id_]
    return bool(left)


@given(ORDERS)
def test_no_order_of_changes_makes_a_cycle_or_claims_a_blocked_task(
    orders: list[tuple[str, int, tuple[int, ...], str]],
) -> None:
    task_board, events = Board(), list[BoardEvent]()
    for n, order in enumerate(orders):
        event = event_of(task_board, order, f"key-{n}")
        if event is None:
            continue
        before, task_board = task_board, apply_events(task_board, event)
        events.append(event)
        now = {task.id: task for task in task_board.tasks}
        assert not has_a_cycle(task_board.tasks)
        if order[0] in ("claim", "next"):
            assert before.task(event.id).status == "pending"
            assert before.task(event.id).waits_for == ()
            assert (now[event.id].status, now[event.id].owner) == ("in_progress", order[3])
        for task in task_board.tasks:
            assert task == task_board.task(task.id)
            assert all(task.id in now[block].blocked_by for block in task.blocks)
            assert all(task.id in now[number].blocks for number in task.blocked_by)
            assert all(now[number].open for number in task.waits_for)

    half = len(events) // 2
    assert fold_board(fold_board(Board(), events[:half]), events[half:]) == fold_board(
        Board(), events
    )


@given(ORDERS)
def test_a_repeated_call_does_not_change_the_task_board(
    orders: list[tuple[str, int, tuple[int, ...], str]],
) -> None:
    task_board = Board()
    for n, order in enumerate(orders):
        task_board = apply_events(task_board, event_of(task_board, order, f"key-{n}"))
        if f"key-{n}" in task_board.calls:
            assert event_of(task_board, order, f"key-{n}") is None


def test_a_dependency_cycle_is_refused_with_its_chain() -> None:
    task_board = board(
        NewTask("a"), NewTask("b", blocked_by=(1,)), NewTask("c", blocked_by=(2,))
    )

    with pytest.raises(BadInput) as error:
        task_board.update(1, TaskChange(blocked_by=(3,)), "ann")

    assert str(error.value) == (
        "task 1 cannot wait for task 3: task 3 waits for task 2, which waits for task 1"
    )


@pytest.mark.parametrize(("blockers", "why"), [
    ((1,), "task 1 cannot wait for itself"),
    ((9,), "there is no task 9 on the board: it has 1 to 2"),
])  # fmt: skip
def test_invalid_blockers_of_a_task_are_refused(
    blockers: tuple[int, ...], why: str
) -> None:
    task_board = board(NewTask("a"), NewTask("b"))

    with pytest.raises(BadInput, match=why):
        task_board.update(1, TaskChange(blocked_by=blockers), "ann")


@pytest.mark.parametrize("ended", ["done", "cancelled"])
def test_ending_a_task_unblocks_its_dependents_and_reopening_blocks_them_again(
    ended: str,
) -> None:
    result = board(NewTask("a"), NewTask("b", blocked_by=(1,)))
    waiting = result.task(2).waits_for
    result = change_task(
        result, 1, TaskChange(status="done" if ended == "done" else "cancelled")
    )
    free = result.task(2).waits_for
    result = change_task(result, 1, TaskChange(status="pending"))

    assert (waiting, free, result.task(2).waits_for) == ((1,), (), (1,))


def test_claim_takes_tasks_of_the_owner_first_and_then_the_first_free_one() -> None:
    task_board = board(
        NewTask("a"), NewTask("b", blocked_by=(1,)), NewTask("c", owner="bob"),
        NewTask("d", owner="ann"), NewTask("e"),
    )  # fmt: skip
    claimed_ids = list[int]()
    for _ in range(3):
        event = task_board.claim(0, "ann")
        assert event is not None
        claimed_ids.append(event.id)
        task_board = apply_events(task_board, event)

    assert claimed_ids == [4, 1, 5]
    with pytest.raises(BadInput) as error:
        task_board.claim(0, "ann")
    assert str(error.value) == (
        "no task is free: 3 in progress, 2 waiting for others or meant for another owner"
    )


@pytest.mark.parametrize(("change", "by", "why"), [
    *((change, "bob", "task 1 is in progress with ann: only that one, or a person, changes it") for change in (
        TaskChange(status="done"), TaskChange(status="pending"), TaskChange(status="cancelled"),
        TaskChange(status="in_progress"), TaskChange(owner="bob"), TaskChange(subject="b"),
        TaskChange(status="pending", owner="bob"), TaskChange(blocked_by=()), TaskChange(metadata={"a": "b"}),
    )),
])  # fmt: skip
def test_a_task_in_progress_of_another_session_is_not_changed(
    change: TaskChange, by: str, why: str
) -> None:
    task_board = board(NewTask("a"))
    task_board = apply_events(task_board, task_board.claim(1, "ann"))

    with pytest.raises(BadInput) as error:
        task_board.update(1, change, by)

    assert str(error.value) == why
    assert task_board.update(1, TaskChange(status="done"), PERSON_NAME) == TaskUpdated(
        1, status="done"
    )


def test_a_task_set_back_to_pending_has_no_owner_unless_one_is_named() -> None:
    task_board = board(NewTask("a"))
    task_board = apply_events(task_board, task_board.claim(1, "ann"))

    back = change_task(task_board, 1, TaskChange(status="pending"), "ann").task(1)
    handed = change_task(task_board, 1, TaskChange(status="pending", owner="bob")).task(1)

    assert (back.status, back.owner) == ("pending", "")
    assert (handed.status, handed.owner) == ("pending", "bob")


def test_metadata_is_merged_and_null_removes_a_key() -> None:
    result = board(NewTask("a", metadata={"file": "a.py", "n": 1}))

    result = change_task(
        result, 1, TaskChange(metadata={"n": None, "new": [1, {"x": True}]})
    )

    assert result.task(1).metadata == {"file": "a.py", "new": [1, {"x": True}]}


@pytest.mark.parametrize(("task", "why"), [
    (NewTask(" \n"), "the subject is empty"),
    (NewTask("a" * 201), "the subject has 201 characters: 200 at most"),
    (NewTask("a", "b" * 8001), "the description has 8,001 characters: 8,000 at most"),
    (NewTask("a", metadata={"x": "y" * MAX_NOTES_BYTES}), "the metadata has 4,104 bytes of JSON: 4,096 at most"),
    (NewTask("a", blocked_by=tuple(range(1, 102))), "a task is blocked by 100 tasks at most"),
])  # fmt: skip
def test_task_beyond_the_limits_is_refused(task: NewTask, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Board().addition(task)


def test_a_board_with_too_many_open_tasks_refuses_new_ones() -> None:
    full = Board({n: BoardTask(n, "it") for n in range(1, MAX_OPEN_TASKS + 1)})

    with pytest.raises(BadInput, match="the board has 1,000 open tasks"):
        full.addition(NewTask("one more"))


def test_claim_or_update_without_effect_makes_no_event() -> None:
    task_board = board(NewTask("a"))
    task_board = apply_events(task_board, task_board.claim(1, "ann"))

    assert task_board.claim(1, "ann") is None
    assert (
        task_board.update(1, TaskChange(status="in_progress", subject="a"), "ann") is None
    )
