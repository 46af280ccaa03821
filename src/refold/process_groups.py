"""Sends signals to process groups, to stop a program together with everything that it has
started.

It also tells whether a process of a group still runs. The caller decides how long to wait, and
what to do after that. The module is in the lowest layer because `place` and `provider` both
start programs and do not import each other.
"""

import os
from collections.abc import Iterator


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group. Return False if the group has no process left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS reports this for zombies
        return number != 0
    return True


def is_alive(group: int) -> bool:
    """Whether the group has a process that still runs. Zombies do not count.

    In many containers nothing removes the zombies of orphans, so they stay listed forever. On
    systems other than Linux the result is always True.
    """
    live = _live_processes()
    if live is None:  # the caller has to rely on the result of the signal
        return True
    return any(own_group == group for own_group, _ in live)


def signal_session(leader: int, number: int) -> bool:
    """Send a signal to all process groups of the session whose leader is `leader`.

    Return False if no group is left. If processes cannot be listed, only the leader's own group
    gets the signal.
    """
    live = _live_processes()
    groups = {leader}
    if live is not None:
        groups = {group for group, session in live if session == leader}
    reached = {signal_group(group, number) for group in groups}
    return True in reached


def _live_processes() -> Iterator[tuple[int, int]] | None:
    """Return the group and the session of each process that is not a zombie.

    Return None if there is no /proc to list them.
    """
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return None
    return (live for name in numbers if (live := _live_process(name)))


def _live_process(number: str) -> tuple[int, int] | None:
    """Return the group and the session of a process; None if it has ended or is a zombie."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            # The name before the last parenthesis may contain any character.
            state, _, group, session = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else (int(group), int(session))
