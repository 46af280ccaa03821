"""Process groups: ends a program together with everything that it has started.

It signals a group, and says whether any of it still runs. The caller decides how long to
wait, and what to do then.

It is in the lowest layer because `place` and `provider` both start programs and do not
import each other.
"""

import os
from collections.abc import Iterator


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group. False: there is none left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of zombies
        return number != 0
    return True


def is_alive(group: int) -> bool:
    """Whether a process of the group is more than a zombie.

    In many containers orphans are never reaped: they stay listed for ever.
    """
    live = _live_processes()
    if live is None:  # not Linux: believe what the signal said
        return True
    return any(own_group == group for own_group, _ in live)


def signal_session(leader: int, number: int) -> bool:
    """Send a signal to all groups of the session of `leader`. False: there is none left.

    Where processes cannot be listed, only the leader's own group gets it.
    """
    live = _live_processes()
    groups = (
        {leader}
        if live is None
        else {group for group, session in live if session == leader}
    )
    reached = {signal_group(group, number) for group in groups}
    return True in reached


def _live_processes() -> Iterator[tuple[int, int]] | None:
    """Group and session of each process that is more than a zombie; None without /proc."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return None
    return (live for name in numbers if (live := _live_process(name)))


def _live_process(number: str) -> tuple[int, int] | None:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            # The name before the last parenthesis may hold anything.
            state, _, group, session = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else (int(group), int(session))
