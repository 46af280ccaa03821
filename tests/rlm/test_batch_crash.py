"""After a kill among many questions, the next process asks only the open ones."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.journal.events import codec
from refold.journal.events.kinds import Entry
from refold.journal.state.fold import fold
from refold.journal.store.log_file import FILE_NAME
from refold.rlm.call_context import successful_leaves
from refold.views.activity import activity_of, leaf_counts
from tests.rlm.fanning_out import MANY, SESSION

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 60, 200])
def test_questions_answered_before_a_kill_are_not_sent_again(
    after: int, tmp_path: Path
) -> None:
    home, path = tmp_path / "home", tmp_path / "heard"
    journal = home / SESSION / FILE_NAME

    with _start(home, path) as first:
        _wait_until(lambda: path.exists() and path.read_text().count("\n") >= after)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    done = {answered_leaf.key for answered_leaf, _ in successful_leaves(_entries(journal))}
    asked_before = Counter(path.read_text().splitlines())
    # A question is in the journal before it is sent: one of these may not have been
    # received.
    open_then = leaf_counts(activity_of(_entries(journal))).open
    with _start(home, path) as second:
        text, _ = second.communicate(timeout=60)

    counts = Counter(path.read_text().splitlines())
    again = sum((counts - asked_before).values()) - (MANY - len(asked_before))
    assert text == f"[{MANY},{MANY},true]\n"
    assert len(counts) == MANY
    assert again == len(asked_before) - len(done)
    assert len(done) >= after - 16
    view, activity = fold(_entries(journal)), activity_of(_entries(journal))
    unknown = [leaf for leaf in activity.leaves if leaf.end and leaf.end.failed]
    assert leaf_counts(activity).open == 0
    assert len(unknown) == open_then >= again
    assert view.account.spent.usage.estimated == bool(unknown)


def _start(home: Path, log: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, str(HERE / "fanning_out.py"), str(home), str(log)]
    paths = os.pathsep.join((str(HERE), str(HERE.parent.parent)))
    environ = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)  # another process: there is no notification


def _entries(journal: Path) -> list[Entry]:
    lines = journal.read_bytes().split(b"\n")[:-1]
    return [entry for entry, _ in codec.decode(lines)]
