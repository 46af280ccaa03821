"""The differences between two system prompts, with model and tools, in words. Pure."""

from collections.abc import Iterator, Sequence

from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.system_text import part_of

_VALUE_FIELDS = ("agent", "model", "window", "max_output", "effort")


def differences(
    before: SystemPromptSet, after: SystemPromptSet, part_names: Sequence[str] = ()
) -> Sequence[str]:
    """A short sentence for each difference.

    With `part_names`, just these parts of the system text, and "tools".
    """
    if part_names:
        named = [name for name in _differing_parts(before, after) if name in part_names]
        tools = _tools(before, after) if "tools" in part_names else ()
        return (*(_part_text(name, before, after) for name in named), *tools)
    return (*_values(before, after), *_system(before, after), *_tools(before, after))


def _values(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    for name in _VALUE_FIELDS:
        was, is_ = getattr(before, name), getattr(after, name)
        if was != is_:
            yield f"{name}: {was or 'none'}, now {is_ or 'none'}"
    if bytes(before.schema) != bytes(after.schema):
        yield "the schema of the answer differs"


def _system(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    if before.system == after.system:
        return
    changed = _differing_parts(before, after)
    if not changed:
        was, is_ = len(before.system), len(after.system)
        yield f"system text: {was} characters, now {_size(was, is_)}"
    yield from (_part_text(name, before, after) for name in changed)


def _differing_parts(before: SystemPromptSet, after: SystemPromptSet) -> list[str]:
    names = dict.fromkeys((*dict(before.parts), *dict(after.parts)))
    return [name for name in names if part_of(before, name) != part_of(after, name)]


def _part_text(name: str, before: SystemPromptSet, after: SystemPromptSet) -> str:
    was, is_ = len(part_of(before, name)), len(part_of(after, name))
    return f"system text, {name}: {was} characters, now {_size(was, is_)}"


def _size(was: int, is_: int) -> str:
    return f"{is_} others" if was == is_ else str(is_)


def _tools(before: SystemPromptSet, after: SystemPromptSet) -> Iterator[str]:
    was, are = ({tool.name: tool for tool in prompt.tools} for prompt in (before, after))
    gone = ", ".join(name for name in was if name not in are)
    new = ", ".join(name for name in are if name not in was)
    other = ", ".join(name for name in was if name in are and was[name] != are[name])
    yield from (
        f"{words}: {names}"
        for words, names in (
            ("removed tools", gone),
            ("added tools", new),
            ("tools with a changed description", other),
        )
        if names
    )
