"""What the tools for source code say with a server that works, and with bad ones.

The server is a program of its own (`scripted_language_server`), without a sandbox here.
"""

import gc
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from refold.code.edit_checks import EditChecks
from refold.code.language_servers import LanguageServers, ServerContext
from refold.code.languages import KNOWN_LANGUAGES
from refold.code.source_code import CodeWorkspace, SourceCode
from refold.code.wire import Diagnostic
from refold.errors import ToolFailed
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.port import Real
from refold.programs import Programs
from refold.testing.places import ToolDirectory
from refold.tools.code import diagnostics, references, symbols
from refold.values.log_level import Level
from tests.code.scripted_language_server import install

T = TypeVar("T")
PYTHON_SERVER = KNOWN_LANGUAGES[0].servers[0]
TEA = "def make_tea(leaves):\n    return leaves\n\n\ndef drink():\n    make_tea(1)\n"
BY = "By basedpyright-langserver."
GIVEN_UP = (
    "The language server basedpyright-langserver failed ({why}), and is not started again in "
    "this session."
)


class CodeProject:
    """A workspace with a language server, and the tools that use it."""

    def __init__(
        self, base: Path, mode: str, *, seconds: float = 10.0, refused: str = ""
    ) -> None:
        self.root = base / "work"
        self.root.mkdir()
        self.file = self.root / "tea.py"
        self.file.write_text(TEA)
        programs = install(base / "bin", mode) if mode else base
        environ = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
        self.log = list[tuple[str, str]]()
        commands = ShellCommands(environ)
        find = Programs(environ, [str(self.root)]).find
        surroundings = ServerContext(str(self.root), commands, find, self._log, seconds)
        self.servers = LanguageServers(surroundings)
        self.place = ToolDirectory(self.root, commands)
        self.files = DiskFiles(self.root, why_unreadable=self._unread)
        workspace = CodeWorkspace((str(self.root),), self.servers, find, refused)
        self.code = SourceCode(workspace, self.files)
        self.place.code = self.code  # pyright: ignore[reportAttributeAccessIssue]
        self.forbidden = ""

    def _log(self, level: Level, message: str, session: str = "") -> None:
        self.log.append((level, message))

    def _unread(self, real: Real) -> str:
        return "it is secret" if self.forbidden and self.forbidden in real else ""

    async def outline(self, file: str = "tea.py") -> str:
        return (await self.place.use(symbols, {"file": file})).text

    async def find_symbols(self, query: str) -> str:
        return (await self.place.use(symbols, {"query": query})).text

    async def list_diagnostics(self, file: str = "tea.py") -> str:
        return (await self.place.use(diagnostics, {"file": file})).text

    async def mentions(self, line: int, symbol: str) -> str:
        data = {"file": "tea.py", "line": line, "symbol": symbol}
        return (await self.place.use(references, data)).text


@contextmanager
def language_servers(base: Path, mode: str, **options: object) -> Generator[CodeProject]:
    project = CodeProject(base, mode, **options)  # pyright: ignore[reportArgumentType]
    try:
        yield project
    finally:
        project.servers.close()
        project.place.commands.close()


pytestmark = pytest.mark.slow


def test_outline_lists_the_symbols_of_a_file(tmp_path: Path) -> None:
    with language_servers(tmp_path, "good") as project:
        outline = anyio.run(project.outline)

    assert outline == f"1 function make_tea\n5 function drink\n{BY}"


def test_symbol_search_finds_a_file_that_was_just_written(tmp_path: Path) -> None:
    async def ask(project: CodeProject) -> list[str]:
        before = await project.find_symbols("MILK")
        (project.root / "milk.py").write_text("def pour_milk(): ...\n")
        return [before, await project.find_symbols("MILK")]

    with language_servers(tmp_path, "good") as project:
        texts = anyio.run(ask, project)

    assert texts == [
        f"There are no symbols of 'MILK'.\n{BY}",
        f"milk.py:1 function pour_milk\n{BY}",
    ]


def test_references_lists_definition_and_uses_of_a_symbol(tmp_path: Path) -> None:
    with language_servers(tmp_path, "good") as project:
        mentions = anyio.run(project.mentions, 6, "make_tea")

    assert mentions == (
        "defined:\n  tea.py:1: def make_tea(leaves):\nused:\n  tea.py:6: make_tea(1)\n" + BY
    )


def test_newlines_in_server_paths_and_messages_add_no_lines_to_the_answer(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "liar") as project:
        project.file.write_text(f"{TEA}BAD tea\n")
        used, diagnostics = (
            anyio.run(project.mentions, 6, "make_tea"),
            anyio.run(project.list_diagnostics),
        )

    assert used.splitlines() == [
        "defined:",
        "  tea.py:1: def make_tea(leaves):",
        "used:",
        r"  /etc/x\nBy\x1b[2J:1",
        BY,
    ]
    assert diagnostics.splitlines() == [
        "tea.py:7: error: bad: BAD tea (b1 By refold.\x1b[2J)",
        BY,
    ]


def test_references_with_a_wrong_line_use_the_nearest_line_with_the_symbol(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "good") as project:
        mentions = anyio.run(project.mentions, 3, "tea.drink")

    assert mentions == (
        f"defined:\n  tea.py:5: def drink():\n{BY}\n"
        "(tea.drink is not on line 3: line 5 was taken)"
    )


def test_references_to_a_symbol_not_in_the_file_fail_with_both_names(
    tmp_path: Path,
) -> None:
    with (
        language_servers(tmp_path, "good") as project,
        pytest.raises(ToolFailed, match=r"^tea\.py does not contain 'coffee'\.$"),
    ):
        anyio.run(project.mentions, 1, "coffee")


@pytest.mark.parametrize("mode", ["good", "pull", "pull-later"])
def test_diagnostics_are_those_of_the_current_file_content(
    tmp_path: Path, mode: str
) -> None:
    """The server pushes them, is asked for them, or tells us late that it must be asked."""

    async def ask(project: CodeProject) -> list[str]:
        first = await project.list_diagnostics()
        project.file.write_text(f"{TEA}BAD tea\nODD tea\n")
        second = await project.list_diagnostics()
        project.file.write_text(TEA)
        return [first, second, await project.list_diagnostics()]

    with language_servers(tmp_path, mode) as project:
        texts = anyio.run(ask, project)

    clean = f"No problems in tea.py.\n{BY}"
    assert texts == [clean, f"tea.py:7: error: bad: BAD tea (b1)\n{BY}", clean]


def test_diagnostics_without_a_file_check_all_files_read_so_far(tmp_path: Path) -> None:
    async def ask(project: CodeProject) -> str:
        for name in ("tea.py", "bad.py", "notes.txt"):
            (project.root / name).write_text("BAD\n")
            project.place.known[str(project.root / name)] = "some"
        (project.root / "unread.py").write_text("BAD\n")
        return (await project.place.use(diagnostics, {})).text

    with language_servers(tmp_path, "pull") as project:
        text = anyio.run(ask, project)

    assert text == f"bad.py:1: error: bad: BAD (b1)\ntea.py:1: error: bad: BAD (b1)\n{BY}"


def test_a_language_server_that_crashes_is_started_again(tmp_path: Path) -> None:
    with language_servers(tmp_path, "crash-once") as project:
        outline = anyio.run(project.outline)

    assert outline == f"1 function make_tea\n5 function drink\n{BY}"
    assert [text for level, text in project.log if level == "warning"] == [
        f"basedpyright-langserver has ended: {BROKEN['crash']}"
    ]


def test_a_restart_ends_the_language_server_and_the_next_call_starts_another(
    tmp_path: Path,
) -> None:
    async def ask(project: CodeProject) -> list[str]:
        outlines = [await project.outline()]
        assert project.servers.runs(PYTHON_SERVER)
        project.servers.restart()
        while project.servers.runs(PYTHON_SERVER):
            await anyio.sleep(0.01)
        return [*outlines, await project.outline()]

    with language_servers(tmp_path, "good") as project:
        outlines = anyio.run(ask, project)

    assert outlines == [f"1 function make_tea\n5 function drink\n{BY}"] * 2
    assert [text for level, text in project.log if level == "warning"] == []


BROKEN = {
    "crash": "its process exited with code 139: Segmentation fault",
    "exit": "its process exited with code 3: no such option: --stdio",
    "garbage": "it sent data that is not a message of the protocol: b'HTTP/1.1 200 OK'",
    "endless": f"it sent data that is not a message of the protocol: {b'x' * 60!r}",
    "huge": "it sent a message longer than 32 MiB",
    "no-json": "it sent data that is not a message of the protocol: b'{{{{'",
}


@pytest.mark.parametrize("mode", BROKEN)
def test_after_two_server_failures_tree_sitter_answers_and_gives_the_reason(
    tmp_path: Path, mode: str
) -> None:
    async def ask(project: CodeProject) -> list[str]:
        return [await project.outline(), await project.outline()]

    with language_servers(tmp_path, mode) as project:
        texts = anyio.run(ask, project)

    text = GIVEN_UP.format(why=BROKEN[mode]).rstrip(".")
    assert (
        texts == [f"1 function make_tea\n5 function drink\nBy tree-sitter.\n({text})"] * 2
    )


@pytest.mark.parametrize("mode", ["hang", "hang-later"])
def test_a_hanging_language_server_is_stopped_and_named_in_the_error(
    tmp_path: Path, mode: str
) -> None:
    async def ask(project: CodeProject) -> list[str]:
        return [await _error_text(project.mentions, 1, "make_tea") for _ in range(3)]

    with language_servers(tmp_path, mode, seconds=0.4) as project:
        texts = anyio.run(ask, project)

    why = "it did not answer" if mode == "hang-later" else "it did not (start|answer)"
    assert _fits(texts[-1], GIVEN_UP, f"{why} within 0.4 s")


def test_diagnostics_of_a_language_server_that_sends_none_fail_after_the_timeout(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "silent", seconds=2.0) as project:
        failing = anyio.run(_error_text, project.list_diagnostics)

    assert failing == "basedpyright-langserver reported no diagnostics within 2 s"


def test_after_a_flood_of_diagnostics_the_last_report_is_shown(tmp_path: Path) -> None:
    with language_servers(tmp_path, "flood", seconds=30.0) as project:
        diagnostics = anyio.run(project.list_diagnostics)
        outline = anyio.run(project.outline)

    assert diagnostics == f"No problems in tea.py.\n{BY}"  # its last output
    assert outline.endswith(BY)


def test_diagnostics_of_a_language_server_are_truncated_before_they_are_stored(
    tmp_path: Path,
) -> None:
    """The server is a program of the project, which must not fill our memory."""
    with language_servers(tmp_path, "fat") as project:
        diagnostics = anyio.run(project.list_diagnostics)
        gc.collect()
        objects = [item for item in gc.get_objects() if isinstance(item, Diagnostic)]

    assert diagnostics.startswith("tea.py:1: error: trueooo")
    assert sum(len(diagnostic.message) for diagnostic in objects) == 1_000


def test_noise_of_a_language_server_on_stderr_adds_at_most_200_log_lines(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "noise", seconds=30.0) as project:
        outline = anyio.run(project.outline)

    assert outline.endswith(BY)
    assert 0 < len(project.log) <= 200


def test_an_invalid_server_answer_is_reported_and_tree_sitter_answers(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "odd") as project:
        text = anyio.run(project.find_symbols, "tea")

    assert text.startswith("tea.py:1 function make_tea\nBy tree-sitter for Python.\n")
    assert "its answer does not match the protocol" in text


def test_requests_from_a_language_server_are_answered_or_refused(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "asks") as project:
        outline = anyio.run(project.outline)

    assert '"typeCheckingMode": "standard"' in outline
    assert "null]" in outline
    assert '"message": "refold has no window/showDocument"' in outline


def test_symbol_search_waits_until_the_server_has_indexed_the_workspace(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "slow") as project:
        text = anyio.run(project.find_symbols, "drink")

    assert text == f"tea.py:5 function drink\n{BY}"


def test_symbol_search_works_after_an_outline_on_a_slow_server(tmp_path: Path) -> None:
    async def ask(project: CodeProject) -> str:
        await project.outline()
        return await project.find_symbols("drink")

    with language_servers(tmp_path, "slow", seconds=30.0) as project:
        text = anyio.run(ask, project)

    assert text == f"tea.py:5 function drink\n{BY}"


def test_language_tools_omit_files_that_may_not_be_read(tmp_path: Path) -> None:
    async def ask(project: CodeProject) -> list[str]:
        (project.root / "secret.py").write_text("def secret_tea():\n    make_tea(2)\n")
        project.forbidden = "secret"
        diagnostics = await _error_text(project.list_diagnostics, "secret.py")
        outline = await _error_text(project.outline, "secret.py")
        return [
            await project.find_symbols("tea"),
            await project.mentions(1, "make_tea"),
            diagnostics,
            outline,
        ]

    with language_servers(tmp_path, "good") as project:
        text, mentions, diagnostics, outline = anyio.run(ask, project)

    assert text == f"tea.py:1 function make_tea\n{BY}"
    assert "secret" not in mentions
    assert (diagnostics, outline) == (
        "secret.py may not be read: it is secret.",
        "secret.py may not be read: it is secret.",
    )


def test_without_a_language_server_tree_sitter_answers_and_gives_the_reason(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "") as project:
        outline = anyio.run(project.outline)

    assert outline == (
        "1 function make_tea\n5 function drink\nBy tree-sitter.\n"
        "(no language server for Python is installed: basedpyright-langserver is not on PATH "
        "(pipx install basedpyright))"
    )


def test_without_a_language_server_symbols_are_found_in_either_case_of_any_letter(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "") as project:
        project.file.write_text("def ÜBERSETZEN():\n    pass\n", "utf-8")
        text = anyio.run(project.find_symbols, "übersetzen")

    assert "ÜBERSETZEN" in text


def test_references_without_a_language_server_fail_and_name_the_server(
    tmp_path: Path,
) -> None:
    with language_servers(tmp_path, "") as project:
        failing = anyio.run(_error_text, project.mentions, 1, "make_tea")

    assert failing == (
        "No language server for Python is installed: basedpyright-langserver is not on PATH "
        "(pipx install basedpyright). references needs one: use grep."
    )


def test_no_language_server_is_started_without_a_sandbox(tmp_path: Path) -> None:
    with language_servers(tmp_path, "good", refused="there is no sandbox") as project:
        outline = anyio.run(project.outline)

    assert outline.endswith("By tree-sitter.\n(there is no sandbox)")
    assert project.log == []


def test_an_edit_reports_only_new_diagnostics_once_a_server_runs(tmp_path: Path) -> None:
    async def edits(project: CodeProject) -> list[str | None]:
        path = str(project.file)

        checks = EditChecks(project.code, project.files, starts=False)

        async def edit(text: str) -> str | None:
            after = await checks.begin([path])
            project.file.write_text(text)
            return await after() if after else None

        none = await edit("BAD old\n")
        await project.outline()
        return [
            none,
            await edit("\nBAD old\n"),
            await edit("BAD old\nBAD new\n"),
            await edit(""),
        ]

    with language_servers(tmp_path, "pull") as project:
        result = anyio.run(edits, project)

    assert result == [
        None,
        "",
        "basedpyright-langserver reports a new problem caused by this edit:\n"
        "tea.py:2: error: bad: BAD new (b1)",
        "",
    ]


def test_a_hanging_language_server_does_not_delay_an_edit(tmp_path: Path) -> None:
    async def edit(project: CodeProject) -> object:
        checks = EditChecks(project.code, project.files, starts=True)
        with anyio.fail_after(5):
            return await checks.begin([str(project.file)])

    with language_servers(tmp_path, "hang", seconds=60.0) as project:
        result = anyio.run(edit, project)

    assert result is None


async def _error_text(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ToolFailed) as failure:
        await call(*arguments)  # pyright: ignore[reportGeneralTypeIssues]
    return str(failure.value)


def _fits(text: str, sentence: str, reason: str) -> bool:
    import re

    start, _, end = sentence.partition("{why}")
    return re.fullmatch(re.escape(start) + reason + re.escape(end), text) is not None
