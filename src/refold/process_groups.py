"""Process groups: ends a program together with everything that it has started.

It signals a group, and says whether any of it still runs. The caller decides how long to
wait, and what to do then.

It is in the lowest layer because `place` and `provider` both start programs and do not
import each other.
"""

import os


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
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:  # not Linux: believe what the signal said
        return True
    return any(_is_alive_in(group, number) for number in numbers)


def _is_alive_in(group: int, number: str) -> bool:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            # The name before the last parenthesis may hold anything.
            state, _, belongs_to = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(belongs_to) == group and state not in (b"Z", b"X")
