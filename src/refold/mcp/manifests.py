"""What a server offers, remembered: its tools, prompts and resources, pinned by hash.

The first manifest of a server is accepted, because a person configured the server. From
then on only pinned tools are usable: one whose name, description or schema is new is
blocked until a person has seen the difference. A changed configuration makes another
server. `connections` gets manifests, and `as_tools` makes tools of them.
"""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, reason_of
from refold.mcp.servers import ServerConfig
from refold.place.private_files import DamagedFile, read_decisions, write

_MAX_FILE_BYTES = 8 * 1024 * 1024  # bytes of one file


class RemoteTool(Struct, frozen=True):
    """A tool as its server describes it. `schema` is JSON; with `as_task` the tool is called as a
    task.
    """

    name: str
    description: str
    schema: str
    as_task: bool = False

    @property
    def pin(self) -> str:
        """The hash of all that the model reads of the tool."""
        schema = json.dumps(json.loads(self.schema), sort_keys=True)
        return sha256(
            json.dumps([self.name, self.description, schema]).encode()
        ).hexdigest()


class RemotePrompt(Struct, frozen=True):
    """A prompt template of a server. `arguments` are names; `required` those it needs."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class RemoteResource(Struct, frozen=True):
    """Something that can be read from a server by its URI."""

    uri: str
    name: str = ""
    kind: str = ""


class RemoteArgument(Struct, frozen=True):
    """An argument as typed so far.

    `of` is the name of a prompt or, with `template`, the URI template of a resource.
    `before` has the names and values of the arguments that are already given.
    """

    of: str
    name: str
    value: str = ""
    before: tuple[tuple[str, str], ...] = ()
    template: bool = False


class ServerListing(Struct, frozen=True):
    """What a server offers at one moment."""

    tools: tuple[RemoteTool, ...] = ()
    prompts: tuple[RemotePrompt, ...] = ()
    resources: tuple[RemoteResource, ...] = ()
    title: str = ""  # its own name and version
    templates: tuple[RemoteResource, ...] = ()  # of resources; each URI has {variables}


class Manifest(Struct, frozen=True):
    """What is known of a server. `accepted` are its tools as a person accepted them.

    `failed` is why the last connection failed, or "". `damaged` says that the server's file
    was damaged, until its tools are accepted again. `protocol` is the version to use from
    now on, once a newer one has failed.
    """

    config: str = ""  # fingerprint of its configuration
    offer: ServerListing = ServerListing()
    accepted: tuple[RemoteTool, ...] = ()
    known: bool = False  # whether it was ever connected
    failed: str = ""
    damaged: str = ""
    protocol: str = ""

    @property
    def usable(self) -> tuple[RemoteTool, ...]:
        """The tools that are offered now and are as they were accepted."""
        return tuple(filter(self._is_accepted(), self.offer.tools))

    @property
    def blocked_tools(self) -> tuple[RemoteTool, ...]:
        """The tools that are new, or not as they were accepted."""
        accepted = self._is_accepted()
        return tuple(tool for tool in self.offer.tools if not accepted(tool))

    def why_not_usable(self, server: str, tool: str) -> str:
        """Explain to a model why a tool is not called; "" if it is usable."""
        name = f"The tool {tool!r} of the MCP server {server}"
        if any(entry.name == tool for entry in self.usable):
            return ""
        if self.damaged:
            return f"{name} is blocked: {self.damaged}."
        if not any(entry.name == tool for entry in self.offer.tools):
            return f"{name} is not there: the server does not offer it now."
        return (
            f"{name} is blocked: it is new or has changed since the user accepted the tools. The user "
            f"can look at the difference with `/mcp {server}`, or with `refold mcp test {server}`."
        )

    @property
    def counts(self) -> str:
        """The number of its tools, as "3 tools, 1 blocked"."""
        count, blocked = len(self.usable), len(self.blocked_tools)
        tools = "1 tool" if count == 1 else f"{count} tools"
        return f"{tools}, {blocked} blocked" if blocked else tools

    def _is_accepted(self) -> Callable[[RemoteTool], bool]:
        # A list may have a name twice. Then both tools count as known, and `as_tools` uses
        # neither.
        before = dict[str, list[RemoteTool]]()
        for entry in self.accepted:
            before.setdefault(entry.name, []).append(entry)

        def is_accepted(tool: RemoteTool) -> bool:
            known = before.get(tool.name, [])
            # Most tools are identical: each start compares them, and a hash costs time.
            return tool in known or any(old.pin == tool.pin for old in known)

        return is_accepted

    def after_listing(self, offer: ServerListing) -> "Manifest":
        """Return the manifest after a connection on which the server offered this."""
        accepted = self.accepted if self.known else offer.tools
        return replace(self, offer=offer, accepted=accepted, known=True, failed="")

    def after_acceptance(self) -> "Manifest":
        """Return the manifest after a person has accepted the differences."""
        now = {tool.name for tool in self.offer.tools}
        gone = (tool for tool in self.accepted if tool.name not in now)
        return replace(self, accepted=(*gone, *self.offer.tools), damaged="")

    def differences(self) -> tuple[str, ...]:
        """Return the changes since the tools were accepted, as lines of a diff."""
        before = {tool.name: tool for tool in self.accepted}
        return tuple(
            line
            for tool in self.blocked_tools
            for line in _difference(before.get(tool.name), tool)
        )


class Manifests:
    """The manifests on the disk, one file per server, in a directory of refold's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, server: ServerConfig) -> Manifest:
        """Return what is known of this server; nothing if its configuration has changed."""
        fresh = Manifest(config=fingerprint(server))
        lost = (
            f"the tools of the MCP server {server.name} are blocked until you have seen and "
            f"accepted them: refold mcp test {server.name}"
        )
        try:
            known = read_decisions(
                self._file(server), _MAX_FILE_BYTES, _parse_manifest, lost
            )
        except DamagedFile as error:
            return replace(fresh, known=True, damaged=str(error))
        return known if known and known.config == fresh.config else fresh

    def write(self, server: ServerConfig, manifest: Manifest) -> None:
        """Store a manifest. Raises `BadInput` if it cannot be written."""
        content = msgspec.json.encode(manifest)
        if len(content) > _MAX_FILE_BYTES:
            raise BadInput(
                f"the MCP server {server.name!r} describes its tools in {len(content):,} bytes: "
                f"at most {_MAX_FILE_BYTES:,} are kept"
            )
        try:
            write(self._file(server), content.decode())
        except OSError as error:
            raise BadInput(
                f"what the MCP server {server.name!r} offers cannot be stored: {reason_of(error)}"
            ) from error

    def _file(self, server: ServerConfig) -> Path:
        # A project's server differs from the user's of the same name, and from other
        # projects'.
        mark = sha256(server.source.encode(errors="surrogateescape")).hexdigest()[:12]
        return self._directory / f"{server.name}-{mark}.json"


def _parse_manifest(content: bytes) -> Manifest:
    """Parse a manifest. Raises `ValueError` for what `write` cannot have written."""
    known = msgspec.json.decode(content, type=Manifest)
    if not (known.config and known.known):
        raise ValueError("it does not say which tools were accepted")
    for tool in known.accepted:
        _ = tool.pin  # raises if the schema is not JSON
    return known


def fingerprint(server: ServerConfig) -> str:
    """Return a hash of all that decides which program or address a server is."""
    parts = (server.transport, server.command, server.cwd, server.url)
    return sha256(msgspec.json.encode(parts)).hexdigest()


def _difference(before: RemoteTool | None, now: RemoteTool) -> Iterator[str]:
    from difflib import unified_diff

    old = _lines(before) if before else []
    heads = (f"{now.name} (as you accepted it)", f"{now.name} (as it is now)")
    yield from unified_diff(old, _lines(now), *heads, n=1, lineterm="")


def _lines(tool: RemoteTool) -> list[str]:
    schema = json.dumps(json.loads(tool.schema), indent=2, sort_keys=True)
    return [*tool.description.splitlines(), *schema.splitlines()]
