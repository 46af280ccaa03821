"""A working day of 60 calls: few questions in mode `sandbox`, and nothing unsafe done."""

from collections.abc import Iterator

import anyio
import pytest

from bench.working_day import TURNS, UNSAFE, Project, play, project
from tests.place.walled import home_on_disk, needs_bubblewrap

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    needs_bubblewrap()
    with home_on_disk() as home, project(home) as result:
        monkeypatch.setenv("HOME", str(home))
        yield result


def test_in_mode_sandbox_a_working_day_asks_at_most_eight_times(
    place: Project,
) -> None:
    day = anyio.run(play, place, "sandbox")

    assert sum(map(len, TURNS)) == len(day.results) == 60
    assert len(day.asked) <= 8, day.asked
    assert day.harm == ()
    results = [result for result in day.results if result.startswith("Refused: ")]
    assert len(results) == len(UNSAFE)
    subjects = place.git("log", "--format=%s", "main").splitlines()
    assert subjects[:2] == ["Remove what nobody uses", "Rename old to legacy"]
    assert place.git("status", "--short") == ""
    remote = f"--git-dir={place.home / 'remotes/shop.git'}"
    assert place.git(remote, "log", "--format=%s", "main").splitlines() == subjects
    assert any("0.03 EUR" in result for result in day.results)
    assert any("hello from the shop" in result for result in day.results)


def test_in_the_default_mode_a_working_day_asks_about_edits_and_commands(
    place: Project,
) -> None:
    day = anyio.run(play, place, "default")

    reading = (
        "read_file ",
        "grep ",
        "glob ",
        "list_files ",
        "bash git log",
        "bash cat req",
    )
    assert len(day.asked) >= 40
    assert [text for text in day.asked if text.startswith(reading)] == []
    assert day.harm == ()
