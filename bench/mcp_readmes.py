"""Public MCP servers, each added by the line of its README in a fresh home, and used offline.

    python -m bench.mcp_readmes [NAME …]

It needs npm, Python and, for the first start of each, the network. Then each server is called without
network (`unshare -n`), restarted to see what it kept, and removed. It prints a table of Markdown.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

Call: TypeAlias = tuple[str, Mapping[str, object]]
_SECONDS = 300


class ReadmeServer(Struct, frozen=True):
    """`line` is what a README has. In all texts HOME is the home, WORK the workspace.

    `calls` are made one after the other; `again` after a restart, and its result must have `kept`.
    """

    name: str
    line: str
    calls: tuple[Call, ...] = ()
    again: Call | None = None
    kept: str = ""
    options: tuple[str, ...] = ()


_ENTITY = {"name": "refold", "entityType": "program", "observations": ["it folds"]}
SERVERS = (
    ReadmeServer(
        "everything", "npx -y @modelcontextprotocol/server-everything",
        (("echo", {"message": "x"}), ("get-sum", {"a": 1, "b": 2})),
    ),
    ReadmeServer(
        "filesystem", "npx -y @modelcontextprotocol/server-filesystem HOME/notes",
        (("write_file", {"path": "HOME/notes/a.txt", "content": "kept"}),
         ("read_text_file", {"path": "HOME/notes/a.txt"})),
        ("read_text_file", {"path": "HOME/notes/a.txt"}), "kept",
        ("--writable", "HOME/notes"),
    ),
    ReadmeServer(
        "memory", "npx -y @modelcontextprotocol/server-memory",
        (("create_entities", {"entities": [_ENTITY]}), ("read_graph", {})),
        ("read_graph", {}), "it folds",
    ),
    ReadmeServer(
        "thinking", "npx -y @modelcontextprotocol/server-sequential-thinking",
        (("sequentialthinking", {"thought": "x", "nextThoughtNeeded": False,
                                 "thoughtNumber": 1, "totalThoughts": 1}),),
    ),
    ReadmeServer(
        "time", "uvx mcp-server-time", (("get_current_time", {"timezone": "UTC"}),)
    ),
    ReadmeServer(
        "git", "uvx mcp-server-git",
        (("git_status", {"repo_path": "WORK"}),
         ("git_create_branch", {"repo_path": "WORK", "branch_name": "kept"})),
        ("git_branch", {"repo_path": "WORK", "branch_type": "local"}), "kept",
        ("--writes",),
    ),
    ReadmeServer("fetch", "uvx mcp-server-fetch"),
    ReadmeServer("playwright", "npx @playwright/mcp@latest"),
    ReadmeServer("chrome-devtools", "npx -y chrome-devtools-mcp@latest"),
    ReadmeServer("desktop-commander", "npx -y @wonderwhy-er/desktop-commander@latest"),
    ReadmeServer(
        "knowledge-graph", "npx -y @itseasy21/mcp-knowledge-graph",
        (("create_entities", {"entities": [_ENTITY]}), ("read_graph", {})),
        ("read_graph", {}), "it folds",
    ),
    ReadmeServer("taskmanager", "npx -y @kazuph/mcp-taskmanager"),
    ReadmeServer("git-cyanheads", "npx @cyanheads/git-mcp-server@latest"),
    ReadmeServer("pdf-reader", "npx -y @sylphx/pdf-reader-mcp"),
    ReadmeServer("excel-npm", "npx --yes @negokaz/excel-mcp-server"),
    ReadmeServer("context7", "npx -y @upstash/context7-mcp"),
    ReadmeServer("duckdb", "uvx mcp-server-motherduck --db-path :memory: --read-write --allow-switch-databases"),
    ReadmeServer("calculator", "uvx mcp-server-calculator",
                 (("calculate", {"expression": "6*7"}),)),
    ReadmeServer("excel", "uvx excel-mcp-server stdio"),
    ReadmeServer("markitdown", "uvx markitdown-mcp"),
    ReadmeServer("word", "uvx --from office-word-mcp-server word_mcp_server"),
    ReadmeServer("tree-sitter", "uvx mcp-server-tree-sitter"),
    ReadmeServer("serena", "uvx --from serena-agent serena start-mcp-server"),
    ReadmeServer("sqlite", "uvx mcp-server-sqlite --db-path WORK/x.db",
                 options=("--writes",)),
)  # fmt: skip


def main(names: Sequence[str]) -> None:
    print("| server | version | outcome |\n|---|---|---|")
    for server in SERVERS:
        if not names or server.name in names:
            with tempfile.TemporaryDirectory(dir=Path.home()) as home:
                version, outcome = _Trial(server, Path(home)).outcome()
            print(f"| {server.name} | {version} | {outcome} |", flush=True)


class _Trial:
    """One server in its home."""

    def __init__(self, server: ReadmeServer, home: Path) -> None:
        self._server, self._home, self._work = server, home, home / "work"
        for each in (self._work, home / "notes", home / "refold"):
            each.mkdir()
        hosts = list[str]()
        hosts += os.environ.get("MCP_README_RULES", "").split()
        allow = json.dumps(["mcp__s", *hosts])
        (home / "refold" / "config.toml").write_text(f"[permissions]\nallow = {allow}\n")
        subprocess.run(["git", "init", "-q", str(self._work)], check=True)
        words = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "one",
        ]
        subprocess.run(["git", "-C", str(self._work), *words], check=True)

    def outcome(self) -> tuple[str, str]:
        server = self._server
        line = map(self._fill, server.line.split())
        added = self._refold(
            "mcp", "add", "s", *map(self._fill, server.options), "--", *line
        )
        version = self._version()
        if "It works" not in added:
            return version, f"does not start: {added.strip().splitlines()[-1][:300]}"
        tools = added.partition("It works: ")[2].partition(",")[0]
        results = list(self._calls(server.calls))
        if failed := [text for outcome, text in results if outcome != "done"]:
            return version, f"{tools}; a call failed: {failed[0][:200]}"
        said = f"{tools}; {len(results)} calls"
        again = list(self._calls((server.again,))) if server.again else []
        if again:
            said += "; state kept" if server.kept in again[0][1] else "; STATE LOST"
        gone = self._refold("mcp", "remove", "s", "--data")
        left = (self._home / "refold" / "mcp-servers").glob("s-*")
        removed = "is removed" in gone and not any(left)
        return version, f"{said}; {'removed' if removed else 'NOT REMOVED'}"

    def _calls(self, calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
        """The outcome and text of each, in a session without network."""
        if not calls:
            return
        script = self._home / "script"
        lines = [
            {"calls": [{"tool": f"mcp__s__{tool}", "arguments": dict(arguments)}]}
            for tool, arguments in calls
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in (*lines, {"text": "Done."}))
        script.write_text(self._fill(text))
        words = ("-p", "Go.", "--script", str(script), "--output-format", "stream-json")
        for line in self._refold(*words, offline=True).splitlines():
            document: dict[str, Any] = json.loads(line) if line[:1] == "{" else {}
            if document.get("type") == "tool_result":
                yield document["outcome"], document["text"]

    def _refold(self, *words: str, offline: bool = False) -> str:
        before = ("unshare", "-n") if offline and shutil.which("unshare") else ()
        environ = {**os.environ, "REFOLD_HOME": str(self._home / "refold")}
        done = subprocess.run(
            (*before, sys.executable, "-m", "refold", *words), cwd=self._work,
            env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def _version(self) -> str:
        records = (self._home / "refold" / "mcp-servers").glob("*/installed.json")
        return next((json.loads(r.read_text())["version"] for r in records), "")

    def _fill(self, text: str) -> str:
        return text.replace("HOME", str(self._home)).replace("WORK", str(self._work))


if __name__ == "__main__":
    main(sys.argv[1:])
