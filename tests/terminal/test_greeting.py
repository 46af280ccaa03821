"""The tip in the first lines of a session at a terminal."""

from refold.terminal.greeting import tip_for


def test_tips_differ_between_sessions_and_a_reopened_session_shows_the_same_tip() -> None:
    sessions = [f"20261125-10{n:02}00-abcd" for n in range(60)]

    tips = [tip_for(session) for session in sessions]

    assert len(set(tips)) > 5
    assert tips == [tip_for(session) for session in sessions]
    assert tip_for("") == ""  # not saved


def test_every_tip_fits_beside_the_help_hint_in_80_columns() -> None:
    around = "/help lists the commands ·  · Ctrl+D leaves"
    # The session's id chooses the tip; these ids choose every one.
    tips = {tip_for(str(n)) for n in range(200)}

    assert max(len(f"{around}{tip}") for tip in tips) <= 80
