"""Runs refold's MCP client as the program that `@modelcontextprotocol/conformance` starts.

The program does what a user would: it uses the server, logs in if an error asks for that, and uses the
server again. A request that follows redirects replaces the browser. The scenario determines the calls.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2

from refold.config.mcp_tokens import StoredGrants
from refold.config.paths import Paths
from refold.errors import ToolFailed
from refold.mcp.connections import Connections, McpContext
from refold.mcp.manifests import Manifests, RemoteTool
from refold.mcp.oauth_login import log_in
from refold.mcp.server_paths import PreparedServer
from refold.mcp.servers import ServerConfig, read, resolve
from refold.place.commands import ShellCommands
from refold.tools.contract import Context
from refold.values.display import AskedQuestion, Form, FormAnswer

GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
MAX_LOGINS = 3


def arguments_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return values for the arguments of a tool, by their types."""
    values = {"string": "text", "number": 2, "integer": 2, "boolean": True}
    arguments = dict[str, Any]()
    for name, result in schema.get("properties", {}).items():
        kind = result.get("type", "string")
        arguments[name] = result.get("default", values.get(kind, "text"))
    return arguments


def calls(tools: Sequence[RemoteTool]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the scenario names, or one call of each tool."""
    if "toolCalls" in GIVEN:
        return [(item["name"], item["arguments"]) for item in GIVEN["toolCalls"]]
    schemas = {tool.name: json.loads(tool.schema) for tool in tools}
    data = {name: arguments_of(schema) for name, schema in schemas.items()}
    if (echo := "json_schema_echo") in data:  # it asks for a token of another server
        data[echo] = {"schema": schemas["json_schema_2020_12_tool"]}
    return list(data.items())


async def accept(asking: AskedQuestion) -> str:
    """Answer as a user who accepts the defaults of each form, and allows everything else."""
    if isinstance(asking.form, Form):
        fields = asking.form.fields
        content = {
            field.name: field.default for field in fields if field.default is not None
        }
        return FormAnswer("accept", content).encode()
    names = [option.label for option in asking.options]
    return next((n for n in ("allow", *names) if n in names), "text")


async def prepare(server: ServerConfig, begin: Callable[[], None]) -> PreparedServer:
    await anyio.lowlevel.checkpoint()
    return PreparedServer(resolve(server, {}))


class Session:
    """One session of refold with the server of the scenario."""

    def __init__(self, config: ServerConfig, home: Path) -> None:
        self.config = config
        self.grants = StoredGrants(Paths(home, home, home), lambda *_: None)
        outside = McpContext(
            lambda _: ShellCommands({}),
            prepare,
            lambda level, what, *_: print(level, what, file=sys.stderr),
            self.grants,
        )
        self.connections = Connections((config,), Manifests(home / "mcp"), outside)

    async def use(self) -> None:
        await self.connections.wait_until_settled(20)
        tools = self.connections.manifest("s").offer.tools
        if why := self.connections.statuses()[0].why:
            raise ToolFailed(why)
        for name, arguments in calls(tools):
            context = Context(Path("/"), "s", "c", lambda _: None, accept)
            try:
                reply = await self.connections.call("s", name, arguments, context)
                print("called", name, reply.text[:200], file=sys.stderr)
            except ToolFailed as error:
                print("refold:", error, file=sys.stderr)
                if "refold mcp login" in str(error):
                    raise

    async def log_in(self) -> None:
        async def browse(url: str) -> None:
            async with httpx2.AsyncClient(follow_redirects=True) as browser:
                await browser.get(url)

        before = self.grants.read("s", self.config.url)
        grant = await log_in(self.config, {}, browse, before)
        self.grants.write("s", self.config.url, grant)


async def main(url: str) -> int:
    document = "https://conformance-test.local/client-metadata.json"
    data: dict[str, Any] = {"type": "http", "url": url}
    data["oauth"] = {"clientMetadataUrl": document}
    if "client_id" in GIVEN:
        data["oauth"] = {
            "clientId": GIVEN["client_id"],
            "clientSecret": GIVEN.get("client_secret", ""),
        }
    (config,) = read(json.dumps({"s": data}), "conformance").servers
    with tempfile.TemporaryDirectory() as home:
        for _ in range(MAX_LOGINS):
            session = Session(config, Path(home))
            try:
                await session.use()
                return 0
            except ToolFailed as error:
                print("refold:", error, file=sys.stderr)
                if "refold mcp login" not in str(error):
                    return 1
            finally:
                await anyio.to_thread.run_sync(session.connections.close)
            await session.log_in()
    return 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1]))
