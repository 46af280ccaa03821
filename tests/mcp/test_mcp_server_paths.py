"""The paths that an MCP server sees below /tmp, and the sentence about one that it may not use."""

from pathlib import Path

import pytest

from refold.mcp.server_paths import PreparedServer, visible_paths
from refold.mcp.servers import ServerConfig


def server(*command: str, writes: bool = False, **environ: str) -> ServerConfig:
    return ServerConfig(
        "s", "stdio", command, tuple(environ.items()), cwd="/", writes=writes
    )


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "notes").mkdir(parents=True)
    return tmp_path / "home"


def prepare(config: ServerConfig, user_home: Path) -> PreparedServer:
    work = str(user_home.parent / "work")
    return PreparedServer(config, (f"{user_home}/own",), (work,), str(user_home))


def test_a_program_below_tmp_is_visible_with_its_virtual_environment(
    tmp_path: Path,
) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    program = tmp_path / "venv" / "bin" / "serve"
    program.touch()

    paths = visible_paths(server(str(program)), ("/work",), "")

    assert paths == ("/work", str(tmp_path / "venv"))


def test_a_script_below_tmp_is_visible_with_its_packages(tmp_path: Path) -> None:
    script = tmp_path / "project" / "dist" / "index.js"
    script.parent.mkdir(parents=True)
    script.touch()
    (tmp_path / "project" / "node_modules").mkdir()
    data = tmp_path / "data"
    data.mkdir()

    paths = visible_paths(server("node", str(script), f"--dir={data}"), (), "/usr/bin")

    assert paths == (str(tmp_path / "project"), str(data))


def test_tmp_itself_and_system_programs_add_no_visible_path() -> None:
    assert visible_paths(server("node", "/tmp", "/usr/bin/env"), (), "") == ()


@pytest.mark.parametrize(
    "error",
    [
        "EROFS: read-only file system, open '{path}'",
        "[Errno 30] Read-only file system: '{path}'",
        "fatal: Unable to create '{path}': Read-only file system",
        "open {path}: permission denied",
        'Read-only file system (os error 30) at path "{path}"',
    ],
)
def test_a_write_error_is_explained_with_the_path_and_the_writable_option(
    user_home: Path, error: str
) -> None:
    path = user_home / "notes" / "new" / "a.txt"

    advice = prepare(server("serve"), user_home).advice(error.format(path=path))

    assert advice == (
        f'The MCP server s may not change {path}: "writable": ["~/notes"] in its entry '
        "(refold mcp add --writable DIR) lets it."
    )


def test_a_write_error_in_the_workspace_is_explained_with_the_writes_option(
    user_home: Path,
) -> None:
    (user_home.parent / "work").mkdir()
    path = user_home.parent / "work" / "a.txt"
    error = f"EROFS: read-only file system, open '{path}'"

    advice = prepare(server("serve"), user_home).advice(error)
    writer = prepare(server("serve", writes=True), user_home).advice(error)

    assert advice.startswith(f'The MCP server s may not change {path}: "writes": true')
    assert writer == ""


@pytest.mark.parametrize(
    "frame", ['  File "{own}", line 9, in x', "    at open ({own}:9:1)"]
)
def test_the_refused_path_is_not_taken_from_a_stack_trace(
    user_home: Path, frame: str
) -> None:
    code = user_home / "code.py"
    code.touch()
    config = server("serve", f"--db={user_home}/notes/x.db")
    error = f"{frame.format(own=code)}\nunable to open database file"

    advice = prepare(config, user_home).advice(error)

    assert advice.startswith(f"The MCP server s may not change {user_home}/notes/x.db")


def test_an_error_without_a_path_is_explained_with_the_path_of_an_argument(
    user_home: Path,
) -> None:
    config = server("serve", f"--db={user_home}/notes/x.db")

    advice = prepare(config, user_home).advice("unable to open database file")

    assert advice.startswith(f"The MCP server s may not change {user_home}/notes/x.db")


def test_an_error_about_a_hidden_path_is_explained_with_the_path(user_home: Path) -> None:
    path = user_home / "notes"

    advice = prepare(server("serve"), user_home).advice(f"ENOENT: no such file '{path}'")

    assert advice.startswith(f"The MCP server s does not see {path}, for its sandbox")


@pytest.mark.parametrize(
    "error",
    [
        "EROFS: read-only file system, open '{home}/own/x'",  # it may: the disk is so
        "EACCES: permission denied, open '{home}/.ssh/id'",  # nothing opens keys
        "ENOENT: no such file '{home}/no/such'",
        "no path, no errno",
    ],
)
def test_errors_that_no_option_can_resolve_are_not_explained(
    user_home: Path, error: str
) -> None:
    (user_home / ".ssh").mkdir()

    assert prepare(server("serve"), user_home).advice(error.format(home=user_home)) == ""


def test_roots_are_the_workspace_and_the_named_directories(user_home: Path) -> None:
    config = server("serve", str(user_home / "notes"), "/no/directory")

    roots = prepare(config, user_home).roots_to_offer()

    assert roots == (f"{user_home.parent}/work", f"{user_home}/notes")
