"""The files of the editor: the official SDK's client offers `fs/…` to `refold acp`."""

from hashlib import sha1
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from acp.interfaces import Client
from anyio import to_thread

from refold.acp.editor_buffers import EditorBuffers
from refold.errors import ToolFailed
from tests.acp.editor import Connected, Editor, connect_editor
from tests.cli.running import call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

READ = call("read_file", path="a.py")
EDIT = call("edit_file", path="a.py", old="1", new="2")


def results(editor: Connected) -> list[str]:
    """Return what the model reads from each call, as far as it is shown."""
    return [
        "".join(part.content.text for part in item.content or [] if part.type == "content")
        for item in editor.editor.updates_of("tool_call_update")
        if item.status in ("completed", "failed")
    ]


def test_the_model_reads_unsaved_text_of_the_editor(project_directory: Path) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            editor.editor.unsaved[str(project_directory / "a.py")] = "y = 7\n"
            await editor.prompt(session, "Read it")
            (result,) = results(editor)
            assert "1\ty = 7" in result
            assert "a.py has unsaved changes in the editor" in result

    anyio.run(check)


def test_an_allowed_change_is_written_by_the_editor(project_directory: Path) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Make x 2")
            assert editor.editor.written == [
                (session, str(project_directory / "a.py"), "x = 2\n")
            ]
            assert (project_directory / "a.py").read_text() == "x = 2\n"
            assert len(editor.editor.asked) == 1

    anyio.run(check)


def test_a_denied_change_is_not_written_by_the_editor(project_directory: Path) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        lines = (READ, EDIT, {"text": "I see."})
        async with connect_editor(
            project_directory, *lines, said=lambda *_: "no", files=True
        ) as editor:
            session = await editor.new()
            editor.editor.unsaved[str(project_directory / "a.py")] = "x = 1\ny = 7\n"
            await editor.prompt(session, "Make x 2")
            (update, _), *_ = editor.editor.asked
            (diff,) = [part for part in update.content or [] if part.type == "diff"]
            assert (diff.old_text, diff.new_text) == ("x = 1\ny = 7\n", "x = 2\ny = 7\n")
            assert editor.editor.written == []
            assert (project_directory / "a.py").read_text() == "x = 1\n"

    anyio.run(check)


def in_a_checkpoint(content: bytes, home: Path) -> bool:
    """Return whether the private repositories of snapshots have a file with this content."""
    name = sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    paths = (home / "refold" / "checkpoints").rglob(f"objects/{name[:2]}/{name[2:]}")
    return any(paths)


def test_unsaved_text_is_saved_before_the_checkpoint_of_a_change(
    project_directory: Path, home: Path
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            path = str(project_directory / "a.py")
            editor.editor.unsaved[path] = "x = 1\ny = 7\n"
            await editor.prompt(session, "Make x 2")
            assert [text for _, _, text in editor.editor.written] == [
                "x = 1\ny = 7\n",
                "x = 2\ny = 7\n",
            ]
            assert (project_directory / "a.py").read_text() == "x = 2\ny = 7\n"
            assert in_a_checkpoint(b"x = 1\ny = 7\n", home)

    anyio.run(check)


def test_unsaved_text_of_every_file_that_a_response_edits_is_in_a_checkpoint(
    project_directory: Path, home: Path
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")
    (project_directory / "b.py").write_text("x = 1\n")
    read = [{"tool": "read_file", "arguments": {"path": p}} for p in ("a.py", "b.py")]
    edit = [
        {"tool": "edit_file", "arguments": {"path": p, "old": "1", "new": "2"}}
        for p in ("a.py", "b.py")
    ]

    async def check() -> None:
        lines = ({"calls": read}, {"calls": edit}, {"text": "Done."})
        async with connect_editor(project_directory, *lines, files=True) as editor:
            session = await editor.new()
            for name in ("a", "b"):
                editor.editor.unsaved[str(project_directory / f"{name}.py")] = (
                    f"x = 1\n{name} = 7\n"
                )
            await editor.prompt(session, "Make x 2")
            assert (project_directory / "b.py").read_text() == "x = 2\nb = 7\n"
            for name in ("a", "b"):
                assert in_a_checkpoint(f"x = 1\n{name} = 7\n".encode(), home)

    anyio.run(check)


def test_the_next_edit_starts_from_the_unsaved_text_of_the_editor(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")
    again = call("edit_file", path="a.py", old="2", new="3")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, again, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            editor.editor.keeps = True
            await editor.prompt(session, "Make x 2, then 3")
            assert editor.editor.unsaved == {str(project_directory / "a.py"): "x = 3\n"}
            assert (project_directory / "a.py").read_text() == "x = 1\n"
            assert "the editor has not saved a.py" in results(editor)[-1]

    anyio.run(check)


def test_files_are_read_from_disk_if_the_editor_answers_with_an_error(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            editor.editor.broken = "no such buffer"
            await editor.prompt(session, "Make x 2")
            assert (project_directory / "a.py").read_text() == "x = 2\n"
            text = (
                "(the editor did not give its text of a.py (no such buffer), so this is the "
                "saved text)"
            )
            assert [text in item for item in results(editor)] == [True, True]

    anyio.run(check)


def test_a_file_denied_by_a_rule_is_not_requested_from_the_editor(
    project_directory: Path, home: Path
) -> None:
    (project_directory / "secret.txt").write_text("saved\n")
    (home / "refold").mkdir()
    (home / "refold" / "config.toml").write_text(
        '[permissions]\ndeny = ["read_file(secret.txt)"]\n'
    )

    async def check() -> None:
        read = call("read_file", path="secret.txt")
        async with connect_editor(
            project_directory, read, {"text": "I see."}, files=True
        ) as editor:
            session = await editor.new()
            editor.editor.unsaved[str(project_directory / "secret.txt")] = "typed\n"
            await editor.prompt(session, "Read it")
            assert editor.editor.opened == []
            assert "typed" not in "".join(results(editor))

    anyio.run(check)


def test_a_file_outside_the_workspace_is_not_requested_from_the_editor(
    project_directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("saved\n")
    (project_directory / "link.txt").symlink_to(tmp_path / "other.txt")

    async def check() -> None:
        read = call("read_file", path="link.txt")
        async with connect_editor(
            project_directory, read, {"text": "I see."}, files=True
        ) as editor:
            session = await editor.new()
            editor.editor.unsaved |= {
                str(project_directory / "link.txt"): "typed\n", str(tmp_path / "other.txt"): "typed\n"
            }  # fmt: skip
            await editor.prompt(session, "Read it")
            assert editor.editor.opened == []
            assert "1\tsaved" in results(editor)[-1]

    anyio.run(check)


def test_a_fork_uses_its_own_session_id_in_requests_to_the_editor(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}, files=True
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Make x 2")
            (project_directory / "a.py").write_text("x = 1\n")
            forked = await editor.agent.fork_session(
                session_id=session, cwd=str(project_directory)
            )
            await editor.prompt(forked.session_id, "Make x 2")  # the script begins again
            assert [request for request, _, _ in editor.editor.written] == [
                session, forked.session_id,
            ]  # fmt: skip

    anyio.run(check)


def test_an_editor_that_does_not_answer_gets_no_second_request() -> None:
    class Hangs(Editor):
        async def read_text_file(self, session_id: str, path: str, **_: object) -> Any:
            self.opened.append(path)
            await anyio.sleep_forever()

    async def check() -> None:
        hangs = Hangs()
        buffers = EditorBuffers(
            cast("Client", hangs), writes=True, directories=["/w"], patience=0.01
        )
        buffers.session = "s"
        texts = list[str]()
        for _ in range(2):
            try:
                await to_thread.run_sync(buffers.read, "/w/a")
            except ToolFailed as error:
                texts.append(str(error))
        assert texts == ["no answer in 0.01 s", "it did not answer before"]
        assert hangs.opened == ["/w/a"]

    anyio.run(check)


def test_a_file_is_requested_by_the_path_that_the_editor_uses_for_its_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "a").write_text("x")

    async def check() -> None:
        editor = Editor()
        folder = str(tmp_path / "link")
        buffers = EditorBuffers(cast("Client", editor), writes=True, directories=[folder])
        buffers.session = "s"
        await to_thread.run_sync(buffers.read, str(tmp_path / "real" / "a"))
        assert editor.opened == [str(tmp_path / "link" / "a")]

    anyio.run(check)


def test_a_symlink_inside_the_workspace_does_not_rename_a_requested_file(
    tmp_path: Path,
) -> None:
    project_directory, other = tmp_path / "work", tmp_path / "other"
    project_directory.mkdir()
    other.mkdir()
    (project_directory / "link").symlink_to(other)
    (other / "a").write_text("x")

    async def check() -> None:
        editor = Editor()
        folders = [str(project_directory), str(project_directory / "link")]
        buffers = EditorBuffers(cast("Client", editor), writes=True, directories=folders)
        buffers.session = "s"
        await to_thread.run_sync(buffers.read, str(other / "a"))
        assert editor.opened == [
            str(other / "a")
        ]  # a command could lead the link elsewhere

    anyio.run(check)
