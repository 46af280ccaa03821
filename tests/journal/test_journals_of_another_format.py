"""A journal in the format of an earlier version is refused in one sentence."""

import io
import shutil
from pathlib import Path

import anyio
import pytest

from refold.errors import BadInput, WrongFormat
from refold.journal.bundle.archive import end_of_archive, header_member, member
from refold.journal.bundle.pack import SessionPacker
from refold.journal.bundle.unpack import unpack
from refold.journal.catalogue.indexer import read_card
from refold.journal.events import codec
from refold.journal.fork import fork
from refold.journal.journal_directory import JournalDirectory, first_directory
from refold.journal.store.check import check
from refold.journal.store.file import FileStore
from refold.journal.store.tree_reader import tree
from refold.session.recorder import Recorder

ID = "20260101-120000-abcd"
SENTENCE = (
    f"the session {ID} is in journal format 1, and this version reads format "
    f"{codec.EVENT_FORMAT}: export it with refold 0.1.0, which wrote it"
)


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    directory = JournalDirectory(tmp_path)
    shutil.copytree(Path(__file__).with_name("format_1"), directory.path(ID))
    return directory


def test_a_journal_of_another_format_is_not_opened_or_changed(
    home: JournalDirectory,
) -> None:
    file = home.path(ID) / "events.jsonl"
    before = file.read_bytes()

    with pytest.raises(WrongFormat, match="^" + SENTENCE):
        anyio.run(Recorder(FileStore(home.path(ID))).open)

    assert file.read_bytes() == before


def test_the_catalogue_lists_a_journal_of_another_format_with_the_reason(
    home: JournalDirectory,
) -> None:
    file = home.path(ID) / "events.jsonl"
    card = read_card(ID, file)

    assert (card.events, card.about.directory) == (0, "/work")
    assert card.damage == f"{file}: {SENTENCE}"
    assert first_directory(home.path(ID)) == "/work"


def test_a_check_of_a_journal_of_another_format_reports_only_its_format(
    home: JournalDirectory,
) -> None:
    (damage,) = check(home.path(ID)).damages

    assert (damage.line, damage.what, damage.lost) == (1, SENTENCE, "nothing")


def test_a_tree_shows_a_journal_of_another_format_without_events(
    home: JournalDirectory,
) -> None:
    node = tree(home.path(ID), ID)

    assert (list(node.entries), node.damage) == (
        [], f"{home.path(ID) / 'events.jsonl'}: {SENTENCE}",
    )  # fmt: skip


def test_a_journal_of_another_format_is_not_forked(home: JournalDirectory) -> None:
    with pytest.raises(BadInput, match="^" + SENTENCE):
        fork(home, ID, None, 1.0)


def test_a_journal_of_another_format_is_not_exported(home: JournalDirectory) -> None:
    with pytest.raises(BadInput, match=SENTENCE):
        b"".join(SessionPacker(home.path(ID), ID).pieces())


def test_a_journal_of_another_format_is_not_imported(home: JournalDirectory) -> None:
    lines = (home.path(ID) / "events.jsonl").read_bytes()
    document = b"".join(
        [*header_member(ID), *member("events.jsonl", len(lines), [lines]), end_of_archive()]
    )

    with pytest.raises(BadInput, match=SENTENCE):
        unpack(home, io.BytesIO(document), "s.tar", 1.0, "/here")
