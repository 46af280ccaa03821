"""The history of inputs: saved over runs, shared by processes, without secrets."""

import fcntl
import stat
import time
from pathlib import Path
from threading import Thread

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from refold.console.history import HistorySuggester, open_history

LOCKS = Path("/proc/locks")


def unchanged(text: str) -> str:
    return text


def load_history(path: Path) -> list[str]:
    """Oldest first."""
    return [*open_history(path, unchanged, unchanged).load_history_strings()][::-1]


def test_two_processes_keep_the_history_entries_of_both(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    one, two = (
        open_history(path, unchanged, unchanged),
        open_history(path, unchanged, unchanged),
    )

    for number in range(20):
        one.append_string(f"one {number}\nand more")
        two.append_string(f"two {number}")

    both = [w for n in range(20) for w in (f"one {n}\nand more", f"two {n}")]
    assert load_history(path) == both
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_secrets_and_long_texts_are_not_written_to_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = open_history(path, lambda t: t.replace("MARK", "x" * 11_000), str.upper)

    history.append_string("a mark")
    history.append_string("MARK")

    assert history.get_strings() == ["a mark", "MARK"]
    assert load_history(path) == ["A MARK"]


def test_a_long_history_is_shortened_to_its_newer_half(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(
        "".join(f"\n# then\n+entry {n} {'x' * 90}\n" for n in range(12_000)), "utf-8"
    )

    texts = load_history(path)

    assert texts[-1] == f"entry 11999 {'x' * 90}"
    assert texts[0] == f"entry {12_000 - len(texts)} {'x' * 90}"
    assert path.stat().st_size < 500_001
    assert load_history(path) == texts
    assert [p.name for p in tmp_path.iterdir()] == ["history"]


@pytest.mark.skipif(not LOCKS.exists(), reason="only Linux tells who waits for a lock")
def test_a_line_added_while_another_process_shortens_the_history_is_not_lost(
    tmp_path: Path,
) -> None:
    path, shorter = tmp_path / "history", tmp_path / "shorter"
    history = open_history(path, unchanged, unchanged)
    history.append_string("old")
    shorter.write_text("\n# then\n+newer half\n", "utf-8")
    adding = Thread(target=history.append_string, args=("new",))

    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        adding.start()
        deadline = time.monotonic() + 60
        while f":{path.stat().st_ino} " not in waiting_for_lock():
            assert time.monotonic() < deadline, "it does not wait"
        shorter.replace(path)
    adding.join()

    assert load_history(path) == ["newer half", "new"]


def waiting_for_lock() -> str:
    """Return the lines of those who wait for a lock."""
    lines = LOCKS.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if "->" in line)


def test_a_truncated_history_entry_does_not_damage_others(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"\n# then\n+first\n\n# then\n+cut o")

    open_history(path, unchanged, unchanged).append_string("next")

    assert load_history(path) == ["first", "cut o", "next"]


def test_history_that_cannot_be_written_lasts_for_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()

    history = open_history(tmp_path / "file" / "history", unchanged, unchanged)
    history.append_string("words")

    assert history.get_strings() == ["words"]


def test_the_newest_history_line_with_the_typed_prefix_is_suggested() -> None:
    history = InMemoryHistory()
    for entry in ("make test", "make\nall", "make lint\nand more", "mak\x1be"):
        history.append_string(entry)
    buffer = Buffer(history=history)

    def suggest(typed: str, at: int | None = None) -> str | None:
        suggestion = HistorySuggester().get_suggestion(buffer, Document(typed, at))
        return suggestion.text if suggestion else None

    assert suggest("ma") == "ke lint"
    assert suggest("make t") == "est"
    assert suggest("make lint") is None
    assert suggest("m") is None
    assert suggest("make", at=1) is None
    assert suggest("two\nmake") is None
