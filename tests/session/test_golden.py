"""Journals that earlier versions wrote still have the same meaning."""

import importlib.util
import json
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from refold.engine.model_call import build_request
from refold.journal.events import codec
from refold.journal.events.kinds import Entry, Unknown
from refold.journal.state.fold import View, fold
from refold.testing.providers import check_history

FOLDER = Path(__file__).with_name("golden")
JOURNALS = sorted(FOLDER.glob("*.jsonl"))


def name(path: Path) -> str:
    return path.stem


def recorder() -> Any:
    """Return the script that recorded them."""
    spec = importlib.util.spec_from_file_location("record", FOLDER / "record.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def without_what_is_new(value: object, stored: object) -> object:
    """`value` as far as `stored` goes: a field may be added, with a default."""
    match value, stored:
        case dict(), dict():
            known = cast("dict[str, Any]", stored)
            mine = cast("dict[str, Any]", value)
            return {k: without_what_is_new(mine.get(k), known[k]) for k in known}
        case list(), list():
            ours, theirs = cast("list[Any]", value), cast("list[Any]", stored)
            if len(ours) != len(theirs):
                return ours
            return [without_what_is_new(a, b) for a, b in zip(ours, theirs, strict=True)]
        case _:
            return value


def test_at_least_one_golden_journal_exists() -> None:
    assert JOURNALS


@pytest.mark.parametrize("path", JOURNALS, ids=name)
def test_a_golden_journal_folds_to_its_recorded_view(path: Path) -> None:
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))

    view = fold(entry for entry, _ in codec.decode(lines(path)))

    assert without_what_is_new(recorder().as_json(view), stored) == stored


@pytest.mark.parametrize("path", JOURNALS, ids=name)
def test_every_line_of_a_golden_journal_decodes_without_loss(path: Path) -> None:
    events = [entry.event for entry, _ in codec.decode(lines(path))]
    strange = [event.kind for event in events if isinstance(event, Unknown)]
    data = [json.loads(line)["data"] for line in lines(path)]

    again = [json.loads(codec.dump(event)) for event in events]

    assert strange == ["Teleported"]
    assert without_what_is_new(again, data) == data


@pytest.mark.parametrize("path", JOURNALS, ids=name)
def test_a_golden_journal_gives_a_valid_next_request(path: Path) -> None:
    view = fold(entry for entry, _ in codec.decode(lines(path)))

    check_history(spoken.message for spoken in build_request(view).messages)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("FilesShown", {"notes": ["a.txt (1 line):\none"], "files": [["a.txt", "00"]]}),
        ("RequestChecked", {"problems": ["a.txt is not there."], "ways": []}),
    ],
)
def test_a_removed_event_kind_does_not_change_the_view(kind: str, data: object) -> None:
    line, _ = codec.encode(Entry(1, Unknown(kind, Raw(encode(data)))), codec.Head())

    ((entry, _),) = codec.decode([line])
    assert fold([entry]) == replace(View(), seq=1)
