"""The packages that the command of an MCP server names."""

import pytest

from refold.mcp.packages import Launch, launch_of


@pytest.mark.parametrize(
    ("command", "launch"),
    [
        ("npx -y @scope/server", Launch("node", ("@scope/server",))),
        (
            "/usr/bin/npx -y server@1.2 --flag dir",
            Launch("node", ("server@1.2",), "", ("--flag", "dir")),
        ),
        (
            "npx --yes --package=server -- serve stdio",
            Launch("node", ("server",), "serve", ("stdio",)),
        ),
        ("npm exec -y server -- stdio", Launch("node", ("server",), "", ("stdio",))),
        ("bunx --bun server", Launch("node", ("server",))),
        ("pnpm dlx server", Launch("node", ("server",))),
        ("uvx mcp-server-time", Launch("python", ("mcp-server-time",), "mcp-server-time")),
        (
            "uvx server@1.2.3rc1 --x y",
            Launch("python", ("server==1.2.3rc1",), "server", ("--x", "y")),
        ),
        ("uvx server[all]@latest", Launch("python", ("server[all]",), "server")),
        (
            "uvx --from git+https://github.com/o/r --with b --python 3.12 serve start",
            Launch(
                "python", ("git+https://github.com/o/r", "b"), "serve", ("start",), "3.12"
            ),
        ),
        ("uv tool run server", Launch("python", ("server",), "server")),
        (
            "pipx run --spec server==2 serve stdio",
            Launch("python", ("server==2",), "serve", ("stdio",)),
        ),
    ],
)
def test_a_launcher_names_packages(command: str, launch: Launch) -> None:
    assert launch_of(tuple(command.split())) == launch


@pytest.mark.parametrize(
    "command",
    [
        "node server.js",
        "npx",
        "npx -c server",
        "npx ./server",
        "uvx --from . serve",
        "uvx --unknown server",
        "uv run server",
        "docker run server",
    ],
)
def test_another_command_runs_as_it_is(command: str) -> None:
    assert launch_of(tuple(command.split())) is None
