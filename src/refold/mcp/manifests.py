"""Stores what each server offers: its tools, prompts and resources, and the tools' hashes.

What a server offers at first is accepted, because the user configured the server. Later, a tool
with a new name, description or schema is blocked until the user has seen what changed. A server
whose configuration has changed counts as another server. `connections` gets what servers offer,
and `as_tools` makes refold tools from it.
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
    """A tool as its server describes it. `schema` is JSON.

    If `as_task` is true, the server requires that the tool is called as a task.
    """

    name: str
    description: str
    schema: str
    as_task: bool = False

    @property
    def pin(self) -> str:
        """The hash of what the model reads of the tool: its name, description and schema."""
        schema = json.dumps(json.loads(self.schema), sort_keys=True)
        return sha256(
            json.dumps([self.name, self.description, schema]).encode()
        ).hexdigest()


class RemotePrompt(Struct, frozen=True):
    """A prompt template of a server. `required` are those `arguments` that must be given."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class RemoteResource(Struct, frozen=True):
    """A resource of a server. Its URI identifies it."""

    uri: str
    name: str = ""
    kind: str = ""


class RemoteArgument(Struct, frozen=True):
    """An argument that the user is typing, for which the server can suggest values.

    `of` is the name of a prompt or, with `template`, the URI template of a resource. `before`
    has names and values of the arguments that are already typed.
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
    title: str = ""  # the server's own name and version
    # templates of resources, with {variables} in each URI
    templates: tuple[RemoteResource, ...] = ()


class Manifest(Struct, frozen=True):
    """What is known of a server, and which of its tools the user has accepted (`accepted`).

    `failed` is why the last connection failed, or "". `damaged` says that the server's file was
    damaged, until the user accepts the tools again. `protocol` is the version to use after a
    newer one has failed, or "".
    """

    config: str = ""  # the fingerprint of its configuration
    offer: ServerListing = ServerListing()
    accepted: tuple[RemoteTool, ...] = ()
    known: bool = False  # whether it was ever connected
    failed: str = ""
    damaged: str = ""
    protocol: str = ""

    @property
    def usable(self) -> tuple[RemoteTool, ...]:
        """The offered tools that are unchanged since the user accepted them."""
        return tuple(filter(self._acceptance_check(), self.offer.tools))

    @property
    def blocked_tools(self) -> tuple[RemoteTool, ...]:
        """The offered tools that are new, or have changed since the user accepted the tools."""
        is_accepted = self._acceptance_check()
        return tuple(tool for tool in self.offer.tools if not is_accepted(tool))

    def why_not_usable(self, server: str, tool: str) -> str:
        """Explain to a model why a tool cannot be called; "" if it can."""
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
        """The number of the server's tools as text, like "3 tools, 1 blocked"."""
        count, blocked = len(self.usable), len(self.blocked_tools)
        tools = "1 tool" if count == 1 else f"{count} tools"
        return f"{tools}, {blocked} blocked" if blocked else tools

    def _acceptance_check(self) -> Callable[[RemoteTool], bool]:
        """Return a function that tells whether the user has accepted exactly this tool."""
        # A list may contain a name twice. Then both tools count as known, and `as_tools`
        # uses neither.
        accepted_tools = dict[str, list[RemoteTool]]()
        for entry in self.accepted:
            accepted_tools.setdefault(entry.name, []).append(entry)

        def is_accepted(tool: RemoteTool) -> bool:
            """Return whether a tool with the same name and hash is accepted."""
            same_name = accepted_tools.get(tool.name, [])
            if tool in same_name:  # the usual case, without the time to compute a hash
                return True
            return any(old.pin == tool.pin for old in same_name)

        return is_accepted

    def after_listing(self, offer: ServerListing) -> "Manifest":
        """Return this manifest with `offer`, what the server offers now.

        The first offer of a server counts as accepted.
        """
        accepted = self.accepted if self.known else offer.tools
        return replace(self, offer=offer, accepted=accepted, known=True, failed="")

    def after_acceptance(self) -> "Manifest":
        """Return this manifest after the user has accepted the tools that are offered now."""
        offered_names = {tool.name for tool in self.offer.tools}
        # Tools that are not offered now stay accepted, because they may be offered again.
        not_offered = (tool for tool in self.accepted if tool.name not in offered_names)
        return replace(self, accepted=(*not_offered, *self.offer.tools), damaged="")

    def differences(self) -> tuple[str, ...]:
        """Return the changes of tools since the user accepted them, as lines of a diff."""
        accepted = {tool.name: tool for tool in self.accepted}
        lines = list[str]()
        for tool in self.blocked_tools:
            lines += _difference(accepted.get(tool.name), tool)
        return tuple(lines)


class Manifests:
    """Reads and writes manifests: one file for each server, in a directory of refold."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, server: ServerConfig) -> Manifest:
        """Return what is known of a server; an empty manifest if its configuration changed.

        If the file is damaged, return a manifest that blocks all tools.
        """
        empty = Manifest(config=fingerprint(server))
        damage_hint = (
            f"the tools of the MCP server {server.name} are blocked until you have seen and "
            f"accepted them: refold mcp test {server.name}"
        )
        try:
            stored = read_decisions(
                self._file(server), _MAX_FILE_BYTES, _parse_manifest, damage_hint
            )
        except DamagedFile as error:
            return replace(empty, known=True, damaged=str(error))
        return stored if stored and stored.config == empty.config else empty

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
        """Return the file of a server's manifest."""
        # A project's server must differ from the user's of the same name, and from other
        # projects'.
        digest = sha256(server.source.encode(errors="surrogateescape")).hexdigest()[:12]
        return self._directory / f"{server.name}-{digest}.json"


def _parse_manifest(content: bytes) -> Manifest:
    """Parse a manifest. Raises `ValueError` for content that `Manifests.write` never writes."""
    manifest = msgspec.json.decode(content, type=Manifest)
    if not (manifest.config and manifest.known):
        raise ValueError("it does not say which tools were accepted")
    for tool in manifest.accepted:
        _ = tool.pin  # raises an error if the schema is not JSON
    return manifest


def fingerprint(server: ServerConfig) -> str:
    """Return a hash of the settings that decide which server it is: its command or address."""
    parts = (server.transport, server.command, server.cwd, server.url)
    return sha256(msgspec.json.encode(parts)).hexdigest()


def _difference(before: RemoteTool | None, now: RemoteTool) -> Iterator[str]:
    """Yield the lines of a diff between two versions of a tool.

    If `before` is None, all lines are marked as added.
    """
    from difflib import unified_diff

    yield from unified_diff(
        _lines(before) if before else [],
        _lines(now),
        f"{now.name} (as you accepted it)",
        f"{now.name} (as it is now)",
        n=1,
        lineterm="",
    )


def _lines(tool: RemoteTool) -> list[str]:
    """Return the description and the schema of a tool as lines, for a diff."""
    schema = json.dumps(json.loads(tool.schema), indent=2, sort_keys=True)
    return [*tool.description.splitlines(), *schema.splitlines()]
