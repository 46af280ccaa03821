"""Completions that MCP servers have: arguments of their prompts, and resources after "@".

Only servers that are connected are asked. `completion` completes everything else.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from refold.client.session import Session
from refold.mcp.manifests import RemoteArgument
from refold.values.text import escape_outside
from refold.views.picker import CompletionItem

if TYPE_CHECKING:
    from refold.app.mcp_servers import McpServers

_RESOURCE_PATTERN = re.compile(r"(?:^|[\s(\[])@(?:([A-Za-z0-9_-]+):)?([^\s\"]*)$")
_VARIABLE_PATTERN = re.compile(r"\{\+?([A-Za-z0-9_.]+)\}")
_MAX_OFFERS, _MAX_VALUE_CHARS = 50, 200


def complete_from_servers(session: Session, before: str) -> Iterator[CompletionItem]:
    if session.mcp is None:
        return
    if before.startswith("/"):
        yield from _arguments(session.mcp, before)
    elif (match := _RESOURCE_PATTERN.search(before)) and match[1]:
        yield from _resources(session.mcp, match[1], match[2])
    elif match:
        yield from _servers(session.mcp, match[2])


def _arguments(servers: "McpServers", before: str) -> Iterator[CompletionItem]:
    """Complete the argument of `/mcp__server__prompt` that is being typed."""
    head, _, rest = before.partition(" ")
    prompt = next((p for p in servers.prompts() if f"/{p.name}" == head), None)
    if prompt is None or not (names := prompt.remote.arguments):
        return
    *words, value = rest.split(" ", len(names) - 1)
    argument = RemoteArgument(
        prompt.remote.name,
        names[len(words)],
        value,
        tuple(zip(names, words, strict=False)),
    )
    last = len(words) == len(names) - 1
    for item in _values(servers, prompt.server, argument):
        if last or " " not in item:
            yield CompletionItem(item, len(value))


def _servers(servers: "McpServers", typed: str) -> Iterator[CompletionItem]:
    for status in servers.statuses():
        offer, name = status.manifest.offer, status.config.name
        if (offer.resources or offer.templates) and name.startswith(typed):
            yield CompletionItem(f"{name}:", len(typed), "resources")


def _resources(servers: "McpServers", server: str, typed: str) -> Iterator[CompletionItem]:
    status = next((s for s in servers.statuses() if s.config.name == server), None)
    if status is None:
        return
    offer, left = status.manifest.offer, _MAX_OFFERS
    for resource in offer.resources:
        if left and resource.uri.startswith(typed) and _can_be_typed(resource.uri):
            left -= 1
            yield CompletionItem(resource.uri, len(typed), escape_outside(resource.name))
    for template in offer.templates[:_MAX_OFFERS]:
        begin = template.uri.partition("{")[0]
        if begin.startswith(typed) and begin != typed and _can_be_typed(begin):
            yield CompletionItem(begin, len(typed), escape_outside(template.uri))
        elif (argument := open_variable(template.uri, typed)) is not None:
            for item in _values(servers, server, argument):
                if _can_be_typed(item):
                    yield CompletionItem(item, len(argument.value))


def open_variable(template: str, typed: str) -> RemoteArgument | None:
    """Return the variable of the template that ends what was typed; None if there is none."""
    parts, start = _VARIABLE_PATTERN.split(template), 0
    values = list[tuple[str, str]]()
    for literal, name, next_literal in zip(
        parts[::2], parts[1::2], parts[2::2], strict=False
    ):
        if not typed.startswith(literal, start):
            return None
        start += len(literal)
        end = typed.find(next_literal, start) if next_literal else -1
        if end < 0:
            return RemoteArgument(
                template, name, typed[start:], tuple(values), template=True
            )
        values.append((name, typed[start:end]))
        start = end
    return None


def _values(servers: "McpServers", server: str, argument: RemoteArgument) -> Iterator[str]:
    """Yield values that can be shown and typed: they are text of another program."""
    for value in servers.connections.complete(server, argument)[:_MAX_OFFERS]:
        if value and len(value) <= _MAX_VALUE_CHARS and value.isprintable():
            yield value


def _can_be_typed(text: str) -> bool:
    return text.isprintable() and not re.search(r"[\s\"]", text)
