"""The tip in the first lines of a session at a terminal."""

from refold.terminal.greeting import tip


def test_sessions_get_different_tips_and_one_that_is_opened_again_the_same() -> None:
    sessions = [f"20261125-10{n:02}00-abcd" for n in range(60)]

    shown = [tip(each) for each in sessions]

    assert len(set(shown)) > 5
    assert shown == [tip(each) for each in sessions]
    assert tip("") == ""  # not saved


def test_a_tip_fits_beside_the_first_hint_on_eighty_columns() -> None:
    around = "/help lists the commands ·  · Ctrl+D leaves"
    lines = {len(f"{around}{tip(str(n))}") for n in range(200)}

    assert max(lines) <= 80
