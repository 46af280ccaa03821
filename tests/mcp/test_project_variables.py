"""Variables that a project's MCP file names: passed only where the user allowed each one."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from refold.app.mcp_files import load_servers
from refold.cli.main import main
from refold.config.paths import Paths, paths
from refold.config.project import read_project
from refold.config.trusted_folders import TrustedFolders

SECRET = {"ANTHROPIC_API_KEY": "sk-ant-1234567890abcdef"}
URL = {"url": "https://x.example/${V}"}
PLACES: Mapping[str, object] = {
    "url": URL,
    "header": {"url": "https://x.example/", "headers": {"A": "Bearer ${V}"}},
    "env": {"command": "serve", "env": {"A": "${V}"}},
    "args": {"command": "serve", "args": ["--key=${V}"]},
    "default": {"command": "serve", "args": ["${V:-none}"]},
    "client": {"url": "https://x.example/", "oauth": {"clientSecret": "${V}"}},
}


@pytest.fixture
def project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def places_of(workspace: Path) -> Paths:
    return paths({"REFOLD_HOME": str(workspace.parent / "home")})


def name_server(workspace: Path, config: object, variable: str) -> None:
    text = json.dumps({"mcpServers": {"s": config}}).replace("${V", "${" + variable)
    (workspace / ".mcp.json").write_text(text)


def start_server(
    workspace: Path, environ: Mapping[str, str], *, trust: bool = False
) -> tuple[bool, str]:
    """Return whether the server is on, and the notices to the user."""
    servers = load_servers(str(workspace), places_of(workspace), environ, trust=trust)
    return bool(servers.servers), "\n".join(servers.notices)


def trust(workspace: Path) -> None:
    places = places_of(workspace)
    TrustedFolders(places.folders).trust(read_project(workspace, places.settings))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("flag", [True, False])
def test_a_key_is_passed_to_a_project_server_only_if_the_user_allowed_it(
    project_directory: Path, place: str, flag: bool
) -> None:
    name_server(project_directory, PLACES[place], "ANTHROPIC_API_KEY")
    trust(project_directory)

    on, text = start_server(project_directory, SECRET, trust=flag)

    assert not on
    assert "it would get your ${ANTHROPIC_API_KEY}" in text
    assert text.endswith("to allow it: refold mcp allow s ANTHROPIC_API_KEY")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x"), ("GITHUB_PAT", "x"), ("PGPASSWORD", "x"),
        ("DATABASE_URL", "postgres://me:word@db.example/x"),
        ("HARMLESS", "sk-ant-1234567890abcdef"), ("COPY", "a sk-ant-1234567890abcdef z"),
        ("SESSION_COOKIE", "x"), ("NPM_AUTH", "x"), ("MY_CREDENTIALS", "x"),
    ],
)  # fmt: skip
def test_trust_alone_passes_no_variable_that_may_be_a_secret(
    project_directory: Path, name: str, value: str
) -> None:
    name_server(project_directory, URL, name)

    on, text = start_server(project_directory, {**SECRET, name: value}, trust=True)

    assert not on
    assert f"refold mcp allow s {name}" in text
    assert value not in text.replace(str(project_directory), "") or value == "x"


def test_trust_alone_passes_an_ordinary_variable(project_directory: Path) -> None:
    name_server(project_directory, URL, "PROJECT")

    assert start_server(project_directory, {**SECRET, "PROJECT": "alpha"}, trust=True) == (
        True,
        "",
    )


def test_in_a_trusted_folder_each_variable_must_be_allowed_separately(
    project_directory: Path,
) -> None:
    data = {"url": "https://x.example/${A}/${B}"}
    name_server(project_directory, data, "")
    trust(project_directory)
    environ = {"A": "1", "B": "2"}

    before = start_server(project_directory, environ)
    one = main(["mcp", "allow", "s", "A"])
    half = start_server(project_directory, environ)
    both = main(["mcp", "allow", "s", "A", "B"])
    after = start_server(project_directory, environ)

    assert (one, both) == (0, 0)
    assert "${A} and ${B}; to allow it: refold mcp allow s A B" in before[1]
    assert "${B}; to allow it: refold mcp allow s B" in half[1]
    assert after == (True, "")


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://evil.example/${V}"},
        {"url": "https://x.example/${V}", "headers": {"B": "${V}"}},
        {"command": "sh", "args": ["-c", "${V}"]},
    ],
)
def test_a_changed_server_entry_loses_its_allowed_variables(
    project_directory: Path, changed: object
) -> None:
    name_server(project_directory, URL, "ANTHROPIC_API_KEY")
    main(["mcp", "allow", "s", "ANTHROPIC_API_KEY"])
    allowed = start_server(project_directory, SECRET, trust=True)
    name_server(project_directory, changed, "ANTHROPIC_API_KEY")

    assert allowed == (True, "")
    assert start_server(project_directory, SECRET, trust=True)[0] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["t", "A"], "has an MCP server 't': there is s"),
        (["s", "B"], "the MCP server 's' does not name B: it names A"),
    ],
)
def test_invalid_mcp_allow_commands_are_refused_with_the_reason(
    project_directory: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    name_server(project_directory, URL, "A")

    assert main(["mcp", "allow", *words]) != 0
    assert message in capsys.readouterr().err


def test_trust_add_yes_names_the_variables_and_allows_none(
    project_directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_server(project_directory, URL, "ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET["ANTHROPIC_API_KEY"])

    assert main(["trust", "add", "--yes"]) == 0

    assert "refold mcp allow s ANTHROPIC_API_KEY" in capsys.readouterr().out
    assert start_server(project_directory, SECRET)[0] is False
