"""The title that a session has from its first message on."""

import pytest

from refold.journal.events.kinds import Entry, Said, SessionStarted
from refold.journal.state.fold import fold


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Mend  the\ngutter", "Mend the gutter"),
        ('@"invoices May.xlsx" @paid.csv Which are open?', "Which are open?"),
        ("Compare @a.txt with @b.txt", "Compare @a.txt with @b.txt"),
        ("@a.txt @b.txt", "@b.txt"),
        ("x" * 70, "x" * 60),
    ],
)
def test_the_first_title_is_the_message_without_the_files_named_at_its_beginning(
    message: str, title: str
) -> None:
    view = fold([Entry(1, SessionStarted("/w")), Entry(2, Said(message))])

    assert view.session.title == title
