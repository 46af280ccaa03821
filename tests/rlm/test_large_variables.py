"""Large variables are stored once, unchanged, as long as they do not change."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import msgspec
import pytest

from refold.rlm.process import make_frame
from refold.rlm.worker_port import VariableReport, Variables, WorkerLost
from refold.rlm.worker_side.namespace import Namespace
from refold.rlm.worker_side.snapshots import Parts, put
from tests.place.walled import needs_bubblewrap
from tests.rlm.walled_python import Session, python, run_with_session

LARGE = 300_000


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_bubblewrap()


async def persist(session: Session) -> Variables:
    return (await session.persist())[0]


def test_initial_variables_are_never_serialized(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        await session.put("context", {"a": "x" * LARGE, "b": "ü"})
        await session.put("small", "s")
        await session.cell("same = context['a']; n = 1")

        first = await persist(session)
        await session.cell("n = 2")
        second = await persist(session)

        (handed, text) = first.parts
        assert set(first.new) == {text}  # that text alone, which was in the dictionary
        assert handed in session.disk
        assert (second.parts, second.new) == (first.parts, {})
        assert len(first.index) < 1_000

    run_with_session(tmp_path / "ws", use_session)


CHANGES = (
    ("a = 'a' * 300_000", "a = 'a' * 299_999 + 'b'"),
    ("b = b'b' * 300_000", "b = b'c' * 300_000"),
    ("c = ['c' * 300_000, 'b']", "c[1] = 'c'"),
    ("d = {'k': 'd' * 300_000, 'l': 'b'}", "d['m'] = d.pop('k')"),
    ("e = {'k': 'e' * 300_000, 'l': 'b'}", "e = dict(reversed(e.items()))"),
    ("f = ('f' * 300_000,)", "f = list(f)"),
    ("g = ['g' * 300_000]", "g = [b'g' * 300_000]"),
    ("h = ['h' * 300_000, [1]]", "h[1].append(2)"),
    ("i = {1: 'i' * 300_000}", "i = {True: i[1]}"),
    ("j = bytearray(300_000)", "j[7] = 1"),
)
HASHED = (
    "[hashlib.sha256(repr(x).encode()).hexdigest() for x in (a, b, c, d, e, f, g, h, i, j)]"
)


def test_changed_large_variables_are_restored_in_their_last_state(tmp_path: Path) -> None:
    async def main() -> None:
        async with python(tmp_path / "ws") as session:
            await session.cell(
                "\n".join(["import hashlib", *(code for code, _ in CHANGES)])
            )
            before = await persist(session)
            await session.cell("\n".join(changed for _, changed in CHANGES))
            after = await persist(session)
            hashes = await session.text(HASHED)
            again = await persist(session)
            disk = session.disk
        async with python(tmp_path / "ws") as session:
            await session.restore(after, disk)
            text = await session.text(HASHED)
            restored = await persist(session)
        assert (len(before.new), len(after.new)) == (len(CHANGES), len(CHANGES))
        assert again == Variables(after.index, after.parts)
        assert text == hashes
        assert restored.new == {}

    anyio.run(main)


def test_a_missing_file_of_a_saved_variable_loses_only_that_variable(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        await session.cell("x = 'a' * 300_000; n = 1")
        variables, report = await session.persist()
        session.disk.clear()

        assert await session.restore(variables, {}) == VariableReport(
            (("n", "int"),),
            (("x", "LookupError: the file that contained it is gone"),),
        )
        assert dict(report.kept) == {"x": "str", "n": "int"}

    run_with_session(tmp_path / "ws", use_session)


def test_the_bytes_of_a_large_variable_are_freed_once_it_is_decoded() -> None:
    namespace, parts = cast("Namespace", SimpleNamespace(names={})), Parts()
    content = bytearray(msgspec.json.encode("x" * LARGE))

    put(namespace, "context", "a part", content, parts)

    assert namespace.names == {"context": "x" * LARGE}
    assert (content, parts.given) == (bytearray(), {})


def test_material_is_sent_without_a_copy() -> None:
    blob = b"x" * LARGE

    assert make_frame({"t": "put"}, blob).blob is blob


def test_code_that_fails_again_gives_the_same_error_text(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        for code in (
            "1 / 0",
            "x = (1,",
            "def f(): return 1 / 0\nf()",
            "import json\njson.loads('{')",
        ):
            assert await session.text(code) == await session.text(code)

    run_with_session(tmp_path / "ws", use_session)


def test_code_cannot_read_other_blobs_by_their_hash(tmp_path: Path) -> None:
    other = "0" * 64
    code = (
        "import gc\n"
        "kinds = [one for one in gc.get_objects() if isinstance(one, type)]\n"
        "keeping = next(one for one in kinds if one.__name__ == '_SnapshotBuilder')\n"
        "def where(self, value):\n"
        f"    self.part_names['{other}'] = None\n"
        f"    return '{other}', 'pickle'\n"
        "keeping._store_value = where\n"
        "del kinds, keeping"
    )

    async def use_session(session: Session) -> None:
        assert await session.text(code) == ""
        with pytest.raises(WorkerLost, match="named a part that does not exist"):
            await session.persist()

    run_with_session(tmp_path / "ws", use_session)
