"""Completes arguments of MCP servers' prompts, and their resources after "@".

Only connected servers are asked for completions. `completion` completes everything else.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from refold.client.session import Session
from refold.mcp.manifests import RemoteArgument
from refold.values.text import escape_outside
from refold.views.picker import CompletionItem

if TYPE_CHECKING:
    from refold.app.mcp_servers import McpServers

# @server:address at the end of the text, or only the beginning of the server's name
_RESOURCE_PATTERN = re.compile(r"(?:^|[\s(\[])@(?:([A-Za-z0-9_-]+):)?([^\s\"]*)$")
# a variable in the address of a resource, as in {name} or {+path}
_VARIABLE_PATTERN = re.compile(r"\{\+?([A-Za-z0-9_.]+)\}")
_MAX_OFFERS = 50
_MAX_VALUE_CHARS = 200


def complete_from_servers(session: Session, before: str) -> Iterator[CompletionItem]:
    """Yield completions for a prompt of an MCP server, or for a resource after "@"."""
    if session.mcp is None:
        return
    if before.startswith("/"):
        yield from _arguments(session.mcp, before)
        return
    match = _RESOURCE_PATTERN.search(before)
    if match is None:
        return
    server, typed = match.groups()
    if server is not None:
        yield from _resources(session.mcp, server, typed)
    else:
        yield from _servers(session.mcp, typed)


def _arguments(servers: "McpServers", before: str) -> Iterator[CompletionItem]:
    """Yield completions for the argument of `/mcp__server__prompt` that is being typed."""
    head, _, rest = before.partition(" ")
    prompt = next((p for p in servers.prompts() if f"/{p.name}" == head), None)
    if prompt is None or not prompt.remote.arguments:
        return
    names = prompt.remote.arguments
    # arguments are separated by spaces, and only the last one may contain some
    *complete_values, value = rest.split(" ", len(names) - 1)
    index = len(complete_values)
    is_last = index == len(names) - 1
    argument = RemoteArgument(
        prompt.remote.name,
        names[index],
        value,
        tuple(zip(names, complete_values, strict=False)),
    )
    for item in _values(servers, prompt.server, argument):
        if is_last or " " not in item:
            yield CompletionItem(item, len(value))


def _servers(servers: "McpServers", typed: str) -> Iterator[CompletionItem]:
    """Yield the servers with resources whose names begin with the typed text."""
    for status in servers.statuses():
        offer, name = status.manifest.offer, status.config.name
        if (offer.resources or offer.templates) and name.startswith(typed):
            yield CompletionItem(f"{name}:", len(typed), "resources")


def _resources(servers: "McpServers", server: str, typed: str) -> Iterator[CompletionItem]:
    """Yield the resources of a server that begin with the typed text.

    Of a URI template, the part before the first variable is offered. If the typed text ends in
    a variable, the values of this variable are offered.
    """
    status = next((s for s in servers.statuses() if s.config.name == server), None)
    if status is None:
        return
    offer = status.manifest.offer
    matching = (
        resource
        for resource in offer.resources
        if resource.uri.startswith(typed) and _can_be_typed(resource.uri)
    )
    for resource in islice(matching, _MAX_OFFERS):
        yield CompletionItem(resource.uri, len(typed), escape_outside(resource.name))
    for template in offer.templates[:_MAX_OFFERS]:
        prefix = template.uri.partition("{")[0]
        continues_typed = prefix.startswith(typed) and prefix != typed
        if continues_typed and _can_be_typed(prefix):
            yield CompletionItem(prefix, len(typed), escape_outside(template.uri))
            continue
        argument = open_variable(template.uri, typed)
        if argument is None:
            continue
        for value in _values(servers, server, argument):
            if _can_be_typed(value):
                yield CompletionItem(value, len(argument.value))


def open_variable(template: str, typed: str) -> RemoteArgument | None:
    """Return the variable of the URI template `template` whose value is being typed.

    Return None if `typed` does not end within a variable.
    """
    # a pattern with one group splits into literal text and variable names, in turn
    parts = _VARIABLE_PATTERN.split(template)
    literals, names = parts[::2], parts[1::2]
    complete_values = list[tuple[str, str]]()
    start = 0
    for index, name in enumerate(names):
        if not typed.startswith(literals[index], start):
            return None
        start += len(literals[index])
        # a value ends where the text after its variable begins
        next_literal = literals[index + 1]
        end = typed.find(next_literal, start) if next_literal else -1
        if end < 0:
            return RemoteArgument(
                template, name, typed[start:], tuple(complete_values), template=True
            )
        complete_values.append((name, typed[start:end]))
        start = end
    return None


def _values(servers: "McpServers", server: str, argument: RemoteArgument) -> Iterator[str]:
    """Yield the values that a server suggests for an argument.

    Values that are too long or not printable are left out, because the server is not trusted.
    """
    for value in servers.connections.complete(server, argument)[:_MAX_OFFERS]:
        if value and len(value) <= _MAX_VALUE_CHARS and value.isprintable():
            yield value


def _can_be_typed(text: str) -> bool:
    """Return whether `text` can follow "@", where a space or a quote would end it."""
    return text.isprintable() and not re.search(r"[\s\"]", text)
