"""`/fork`: the user continues in a copy, and the session that they leave stays as it is."""

from pathlib import Path

from refold.journal.events import codec
from refold.journal.events.kinds import Forked, Said
from tests.terminal.at_home import TerminalDriver


def fork_session(
    directory: Path, *typed: str
) -> tuple[str, list[str], dict[str, list[object]]]:
    """Return the session that was begun, the rows on the screen, and who said what where."""
    driver = TerminalDriver(directory)
    rows = driver.tell(*typed, answers=("One.", "Two.", "Three."))
    events_by_session: dict[str, list[object]] = {}
    for session in driver.home.root.iterdir():
        lines = (session / "events.jsonl").read_bytes().split(b"\n")[:-1]
        events = [entry.event for entry, _ in codec.decode(lines)]
        events_by_session[session.name] = [
            e for e in events if isinstance(e, Said | Forked)
        ]
    return driver.ids[0], rows, events_by_session


def test_messages_after_a_fork_are_recorded_only_in_the_copy(tmp_path: Path) -> None:
    first, rows, data = fork_session(tmp_path, "hello", "/fork", "and now?")

    (copy,) = set(data) - {first}
    assert [e.text for e in data[first] if isinstance(e, Said)] == ["hello"]
    assert [e.text for e in data[copy] if isinstance(e, Said)] == ["hello", "and now?"]
    (forked,) = (e for e in data[copy] if isinstance(e, Forked))
    assert (forked.source, forked.id) == (first, copy)
    assert (
        f"Forked at event {forked.seq}. You are in the copy; {first} is unchanged." in rows
    )


def test_fork_takes_an_event_number_and_rejects_invalid_ones(tmp_path: Path) -> None:
    first, rows, data = fork_session(
        tmp_path, "hello", "/fork 999", "/fork soon", "/fork 1", "hi"
    )

    (copy,) = set(data) - {first}
    assert [e.text for e in data[copy] if isinstance(e, Said)] == ["hi"]
    text = "\n".join(rows)
    assert f"the session {first} has no event 999" in text
    assert "type /fork, or /fork EVENT with its number, not 'soon'" in text
