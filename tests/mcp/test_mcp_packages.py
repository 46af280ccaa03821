"""The packages that the command of an MCP server names."""

import pytest

from refold.mcp.packages import PackageLaunch, launch_of


@pytest.mark.parametrize(
    ("command", "launch"),
    [
        ("npx -y @scope/server", PackageLaunch("node", ("@scope/server",))),
        (
            "/usr/bin/npx -y server@1.2 --flag dir",
            PackageLaunch("node", ("server@1.2",), "", ("--flag", "dir")),
        ),
        (
            "npx --yes --package=server -- serve stdio",
            PackageLaunch("node", ("server",), "serve", ("stdio",)),
        ),
        ("npm exec -y server -- stdio", PackageLaunch("node", ("server",), "", ("stdio",))),
        ("bunx --bun server", PackageLaunch("node", ("server",))),
        ("pnpm dlx server", PackageLaunch("node", ("server",))),
        (
            "uvx mcp-server-time",
            PackageLaunch("python", ("mcp-server-time",), "mcp-server-time"),
        ),
        (
            "uvx server@1.2.3rc1 --x y",
            PackageLaunch("python", ("server==1.2.3rc1",), "server", ("--x", "y")),
        ),
        ("uvx server[all]@latest", PackageLaunch("python", ("server[all]",), "server")),
        (
            "uvx --from git+https://github.com/o/r --with b --python 3.12 serve start",
            PackageLaunch(
                "python", ("git+https://github.com/o/r", "b"), "serve", ("start",), "3.12"
            ),
        ),
        ("uv tool run server", PackageLaunch("python", ("server",), "server")),
        (
            "pipx run --spec server==2 serve stdio",
            PackageLaunch("python", ("server==2",), "serve", ("stdio",)),
        ),
    ],
)
def test_packages_of_a_launcher_command_such_as_npx_are_recognized(
    command: str, launch: PackageLaunch
) -> None:
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
def test_a_command_without_a_launcher_names_no_package(command: str) -> None:
    assert launch_of(tuple(command.split())) is None
