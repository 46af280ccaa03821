"""Files that an editor has open, with an editor that is a table of texts."""

import os
import time
from functools import partial
from hashlib import sha256
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from refold.engine.external_edits import find_changes
from refold.errors import ToolFailed
from refold.place.commands import ShellCommands
from refold.place.editor_files import EditorFiles, EditorGate
from refold.place.files import DiskFiles
from refold.place.port import MAX_FILE_BYTES, Files, FileWrite, Real
from refold.values.tools import Confinement


class Texts:
    """An editor. It saves every text, unless it `keeps` it or is `broken`."""

    def __init__(self) -> None:
        self.unsaved = dict[str, str]()
        self.opened, self.written = list[str](), list[str]()
        self.writes, self.keeps, self.broken = True, False, ""

    def read(self, real: str) -> str:
        if self.broken:
            raise ToolFailed(self.broken)
        self.opened.append(real)
        return self.unsaved.get(real) or Path(real).read_bytes().decode()

    def write(self, real: str, text: str) -> None:
        if self.broken:
            raise ToolFailed(self.broken)
        self.written.append(text)
        if self.keeps:
            self.unsaved[real] = text
            return
        self.unsaved.pop(real, None)
        Path(real).write_bytes(text.encode())


class Opened:
    """A workspace with one file, a.txt, in an editor."""

    def __init__(self, root: Path, content: bytes) -> None:
        self.root, self.file = root, root / "a.txt"
        self.file.write_bytes(content)
        self.texts, self.gate = Texts(), EditorGate()
        self.files = EditorFiles(DiskFiles(root), self.texts, self.gate)

    @property
    def real(self) -> Real:
        return Real(str(self.file))

    def call(self, *names: str) -> Files:
        """Return the files of one call, which names these, or a.txt."""
        paths = [str(self.root / name) for name in names] or [str(self.file)]
        return self.files.only(paths)

    def type(self, text: str) -> None:
        self.texts.unsaved[str(self.file)] = text


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(Path(os.path.realpath(tmp_path)), b"saved\n")


UNSAVED = (
    "a.txt has unsaved changes in the editor; commands and searches see the saved text"
)


def test_a_file_that_the_call_names_is_read_with_its_unsaved_text(opened: Opened) -> None:
    opened.type("typed\n")
    files = opened.call()
    assert (files.read(opened.real), files.remarks()) == (b"typed\n", (UNSAVED,))


def test_a_file_that_the_call_does_not_name_is_read_from_the_disk(opened: Opened) -> None:
    opened.type("typed\n")
    files = opened.call("b.txt")
    assert (files.read(opened.real), opened.texts.opened) == (b"saved\n", [])


@pytest.mark.parametrize(
    ("content", "typed_text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),  # one kind of line end
        (b"a\rb\r\n", "a\nb\n"),
        (b"a\nb\n", "a\nb"),  # without the last one
    ],
)
def test_editor_text_that_differs_only_in_line_ends_counts_as_saved(
    tmp_path: Path, content: bytes, typed_text: str
) -> None:
    opened_file = Opened(Path(os.path.realpath(tmp_path)), content)
    opened_file.type(typed_text)
    files = opened_file.call()
    assert (files.read(opened_file.real), files.remarks()) == (content, ())


def test_unsaved_text_has_the_line_ends_of_the_file(tmp_path: Path) -> None:
    opened_file = Opened(Path(os.path.realpath(tmp_path)), b"a\r\nb\r\n")
    opened_file.type("a\nc\n")
    assert opened_file.call().read(opened_file.real) == b"a\r\nc\r\n"


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfx\n", b"caf\xe9\n", b"x\0\n"])
def test_a_file_that_is_not_plain_text_is_read_from_the_disk(
    tmp_path: Path, content: bytes
) -> None:
    opened_file = Opened(Path(os.path.realpath(tmp_path)), content)
    opened_file.type("typed\n")
    assert (opened_file.call().read(opened_file.real), opened_file.texts.opened) == (
        content,
        [],
    )


def test_after_an_error_of_the_editor_the_disk_is_used_with_a_remark(
    opened: Opened,
) -> None:
    opened.texts.broken = "no such buffer"
    files = opened.call()
    files.write(opened.real, b"new\n", expect=digest(b"saved\n"))
    assert opened.file.read_bytes() == b"new\n"
    assert files.remarks() == (
        "the editor did not give its text of a.txt (no such buffer), so this is the saved "
        "text",
    )


def test_an_empty_answer_of_the_editor_does_not_replace_the_saved_text(
    opened: Opened,
) -> None:
    class Mute(Texts):
        def read(self, real: str) -> str:
            return ""

    files = EditorFiles(DiskFiles(opened.root), Mute(), EditorGate()).only([opened.real])
    assert files.read(opened.real) == b"saved\n"
    assert files.remarks() == (
        "the editor did not give its text of a.txt (it gave an empty text), so this is the "
        "saved text",
    )


def test_a_change_of_unsaved_text_is_made_by_the_editor(opened: Opened) -> None:
    opened.type("typed\n")
    opened.call().write(opened.real, b"new\n", expect=digest(b"typed\n"))
    assert (opened.texts.written, opened.file.read_bytes()) == (["new\n"], b"new\n")


def test_text_typed_in_the_editor_since_the_read_is_not_overwritten(opened: Opened) -> None:
    opened.type("typed since\n")
    with pytest.raises(ToolFailed, match=r"^a\.txt changed in the meantime\. Nothing"):
        opened.call().write(opened.real, b"new\n", expect=digest(b"saved\n"))
    assert (opened.texts.written, opened.file.read_bytes()) == ([], b"saved\n")


def test_unsaved_text_is_not_replaced_on_the_disk(opened: Opened) -> None:
    opened.type("typed\n")
    opened.texts.writes = False
    with pytest.raises(ToolFailed):
        opened.call().write(opened.real, b"new\n", expect=digest(b"typed\n"))
    assert opened.file.read_bytes() == b"saved\n"


def test_with_a_read_only_editor_saved_files_are_written_to_the_disk(
    opened: Opened,
) -> None:
    opened.texts.writes = False
    opened.call().write(opened.real, b"new\n", expect=digest(b"saved\n"))
    assert (opened.texts.written, opened.file.read_bytes()) == ([], b"new\n")


def test_the_editor_writes_the_text_of_a_new_file(opened: Opened) -> None:
    files, real = opened.call("deep/b.txt"), Real(str(opened.root / "deep/b.txt"))
    files.write(real, b"new\n", expect="")
    assert (opened.texts.written, Path(real).read_bytes()) == (["new\n"], b"new\n")


def test_a_new_file_is_refused_if_the_editor_has_unsaved_text_for_its_path(
    opened: Opened,
) -> None:
    files, real = opened.call("b.txt"), Real(str(opened.root / "b.txt"))
    opened.texts.unsaved[real] = "mine\n"
    with pytest.raises(ToolFailed, match=r"^b\.txt changed in the meantime"):
        files.write(real, b"new\n", expect="")
    assert not Path(real).exists()


def test_an_editor_that_saves_other_text_is_reported(opened: Opened) -> None:
    class Formats(Texts):
        def write(self, real: str, text: str) -> None:
            super().write(real, text.upper())

    formats = Formats()
    files = EditorFiles(DiskFiles(opened.root), formats, EditorGate()).only([opened.real])
    files.write(opened.real, b"new\n", expect=digest(b"saved\n"))
    assert files.remarks() == (
        "the editor saved a.txt with other text than it was given: read it again",
    )


def test_several_files_are_changed_together_on_the_disk(opened: Opened) -> None:
    other = Real(str(opened.root / "b.txt"))
    puts = [
        FileWrite(opened.real, b"new\n", digest(b"saved\n")),
        FileWrite(other, b"b\n", ""),
    ]
    opened.call("a.txt", "b.txt").put_all(puts)
    assert (opened.texts.written, opened.file.read_bytes()) == ([], b"new\n")


def test_of_several_files_none_is_changed_if_one_has_unsaved_text(opened: Opened) -> None:
    opened.type("typed\n")
    other = Real(str(opened.root / "b.txt"))
    puts = [
        FileWrite(other, b"b\n", ""),
        FileWrite(opened.real, b"new\n", digest(b"typed\n")),
    ]
    with pytest.raises(ToolFailed, match="changed in the meantime"):
        opened.call("a.txt", "b.txt").put_all(puts)
    assert (opened.file.read_bytes(), Path(other).exists()) == (b"saved\n", False)


def test_unsaved_text_is_saved_before_a_checkpoint(opened: Opened) -> None:
    opened.type("typed\n")
    files = opened.call()
    assert anyio.run(files.save_first) is True
    assert (opened.file.read_bytes(), files.remarks()) == (b"typed\n", ())
    assert anyio.run(files.save_first) is False


def test_unsaved_text_that_the_editor_does_not_save_is_reported_before_a_checkpoint(
    opened: Opened,
) -> None:
    opened.type("typed\n")
    opened.texts.keeps = True
    files = opened.call()
    anyio.run(files.save_first)
    assert files.remarks() == (
        "the editor does not save a.txt: a checkpoint has only the text on the disk",
    )


def test_a_file_with_two_hard_links_is_not_written_by_the_editor(opened: Opened) -> None:
    os.link(opened.file, opened.root / "hard")
    with pytest.raises(ToolFailed, match="hard links"):
        opened.call().write(opened.real, b"new\n", expect=digest(b"saved\n"))
    assert opened.texts.written == []


def test_a_file_in_a_folder_that_became_a_link_is_refused_without_the_editor(
    opened: Opened,
) -> None:
    inside, elsewhere = opened.root / "in", opened.root / "elsewhere"
    for folder in (inside, elsewhere):
        folder.mkdir()
        (folder / "x.txt").write_text("x\n")
    files, real = opened.call("in/x.txt"), Real(str(inside / "x.txt"))
    inside.rename(opened.root / "moved")
    inside.symlink_to(elsewhere)
    with pytest.raises(ToolFailed):
        files.write(real, b"new\n", expect=digest(b"x\n"))
    with pytest.raises(ToolFailed):
        files.read(real)
    assert (opened.texts.opened, opened.texts.written) == ([], [])


def test_a_folder_that_becomes_a_link_during_a_read_is_read_from_the_disk(
    opened: Opened,
) -> None:
    inside = opened.root / "in"
    inside.mkdir()
    (inside / "x.txt").write_text("x\n")

    class Swapped(DiskFiles):
        def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes:
            content = super().read(real, at_most)
            inside.rename(opened.root / "moved")
            inside.symlink_to(opened.root / "moved")
            return content

    files = EditorFiles(Swapped(opened.root), opened.texts, opened.gate)
    real = Real(str(inside / "x.txt"))
    assert files.only([real]).read(real) == b"x\n"
    assert opened.texts.opened == []


@pytest.fixture
def busy(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A command runs, and nothing has changed for long."""
    anyio.run(opened.gate.begin_command)
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)
    return opened


def test_unsaved_text_is_read_while_a_command_runs(busy: Opened) -> None:
    busy.type("typed\n")
    assert busy.call().read(busy.real) == b"typed\n"


def test_a_change_is_written_to_the_disk_while_a_command_runs(busy: Opened) -> None:
    files = busy.call()
    files.write(busy.real, b"new\n", expect=digest(b"saved\n"))
    assert (busy.texts.written, busy.file.read_bytes()) == ([], b"new\n")
    assert files.remarks() == (
        "a.txt was written to the disk and not by the editor: a command that can change "
        "files runs",
    )


def test_unsaved_text_is_not_changed_while_a_command_runs(busy: Opened) -> None:
    busy.type("typed\n")
    with pytest.raises(ToolFailed) as raised:
        busy.call().write(busy.real, b"new\n", expect=digest(b"typed\n"))
    assert str(raised.value) == (
        "a.txt has unsaved changes in the editor, and the editor cannot be asked to write it: "
        "a command that can change files runs. Nothing was written. Ask the user to save it."
    )
    assert (busy.texts.written, busy.file.read_bytes()) == ([], b"saved\n")


def test_editor_text_is_discarded_if_a_folder_changed_during_the_request(
    busy: Opened,
) -> None:
    class Moves(Texts):
        def read(self, real: str) -> str:
            (busy.root / "new").mkdir()
            return "of another file\n"

    files = EditorFiles(DiskFiles(busy.root), Moves(), busy.gate).only([busy.real])
    assert files.read(busy.real) == b"saved\n"
    assert files.remarks() == (
        "a command that changes folders runs, so a.txt was read from the disk",
    )


def test_a_large_file_is_read_from_the_disk(tmp_path: Path) -> None:
    opened_file = Opened(Path(os.path.realpath(tmp_path)), b"x" * 1_000_001)
    opened_file.type("typed\n")
    assert len(opened_file.call().read(opened_file.real)) == 1_000_001


def test_text_typed_since_the_model_read_a_file_is_reported_as_a_change(
    opened: Opened,
) -> None:
    known = {str(opened.file): digest(b"saved\n")}
    before = find_changes(known, opened.files)
    opened.type("typed\n")
    after = find_changes(known, opened.files)
    assert (before, after) == ((), ((str(opened.file), "changed"),))


def test_a_write_of_refold_in_an_unsaved_buffer_is_not_reported_as_a_change(
    opened: Opened,
) -> None:
    opened.texts.keeps = True
    opened.call().write(opened.real, b"new\n", expect=digest(b"saved\n"))
    known = {str(opened.file): digest(b"new\n")}
    assert find_changes(known, opened.files) == ()


@pytest.mark.slow
def test_the_editor_writes_nothing_while_a_command_can_change_files(opened: Opened) -> None:
    commands = ShellCommands()
    commands.gate = opened.gate

    async def check() -> None:
        event, write = anyio.Event(), partial(opened.call().write, opened.real)
        async with anyio.create_task_group() as group:
            run = partial(
                commands.run, "echo; tail -f /dev/null", cwd=str(opened.root), seconds=None,
                confines=Confinement(writes=True), on_output=lambda _: event.set(),
            )  # fmt: skip
            group.start_soon(run)
            await event.wait()
            await to_thread.run_sync(partial(write, b"new\n", expect=digest(b"saved\n")))
            assert (opened.texts.written, opened.file.read_bytes()) == ([], b"new\n")
            group.cancel_scope.cancel()
        await to_thread.run_sync(partial(write, b"2\n", expect=digest(b"new\n")))
        assert opened.texts.written == ["2\n"]

    anyio.run(check)


def test_a_command_waits_while_the_editor_writes() -> None:
    gate, texts = EditorGate(), list[str]()

    async def command() -> None:
        await gate.begin_command()
        texts.append("command")
        gate.end_command()

    async def check() -> None:
        async with anyio.create_task_group() as group:
            with gate.editing() as free:
                assert free
                group.start_soon(command)
                await anyio.wait_all_tasks_blocked()
                texts.append("editor")
        assert texts == ["editor", "command"]

    anyio.run(check)
