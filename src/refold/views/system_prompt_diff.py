"""Describes how two system prompts differ, including their models and tools. Pure."""

from collections.abc import Iterator, Sequence

from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.system_text import part_of

_VALUE_FIELDS = ("agent", "model", "window", "max_output", "effort")


def differences(
    before: SystemPromptSet, after: SystemPromptSet, part_names: Sequence[str] = ()
) -> Sequence[str]:
    """Return a short sentence for each difference.

    With `part_names`, only these parts of the text are compared, and the tools if "tools" is
    among them.
    """
    if part_names:
        named = [name for name in _differing_parts(before, after) if name in part_names]
        tools = _tool_differences(before, after) if "tools" in part_names else ()
        return (*(_part_text(name, before, after) for name in named), *tools)
    return (
        *_value_differences(before, after),
        *_text_differences(before, after),
        *_tool_differences(before, after),
    )


def _value_differences(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    """Yield a text for each setting that differs, and for the schema of the answer."""
    for name in _VALUE_FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name}: {old or 'none'}, now {new or 'none'}"
    if bytes(before.schema) != bytes(after.schema):
        yield "the schema of the answer differs"


def _text_differences(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    """Yield a text for each differing part, or one about the size if no part differs."""
    if before.system == after.system:
        return
    changed = _differing_parts(before, after)
    if not changed:
        old_size, new_size = len(before.system), len(after.system)
        yield f"system text: {old_size} characters, now {_size(old_size, new_size)}"
    yield from (_part_text(name, before, after) for name in changed)


def _differing_parts(before: SystemPromptSet, after: SystemPromptSet) -> list[str]:
    names = dict.fromkeys((*dict(before.parts), *dict(after.parts)))
    return [name for name in names if part_of(before, name) != part_of(after, name)]


def _part_text(name: str, before: SystemPromptSet, after: SystemPromptSet) -> str:
    old_size, new_size = len(part_of(before, name)), len(part_of(after, name))
    return f"system text, {name}: {old_size} characters, now {_size(old_size, new_size)}"


def _size(old_size: int, new_size: int) -> str:
    """Return the new number of characters; as "20 others" if it is the same as before."""
    return f"{new_size} others" if old_size == new_size else str(new_size)


def _tool_differences(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    """Yield texts that name the removed, the added and the changed tools, if there are any."""
    old_tools = {tool.name: tool for tool in before.tools}
    new_tools = {tool.name: tool for tool in after.tools}
    removed = [name for name in old_tools if name not in new_tools]
    added = [name for name in new_tools if name not in old_tools]
    changed = [
        name for name, tool in old_tools.items() if new_tools.get(name, tool) != tool
    ]
    for text, names in (
        ("removed tools", removed),
        ("added tools", added),
        ("tools with a changed description", changed),
    ):
        if names:
            yield f"{text}: {', '.join(names)}"
