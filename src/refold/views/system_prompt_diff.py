"""The differences between two system prompts, with model and tools, in words. Pure."""

from collections.abc import Iterator, Sequence

from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.system_text import part_of

_PLAIN = ("agent", "model", "window", "max_output", "effort")


def differences(
    then: SystemPromptSet, now: SystemPromptSet, only: Sequence[str] = ()
) -> Sequence[str]:
    """A short sentence for each difference.

    With `only`, just these parts of the system text, and "tools".
    """
    if only:
        named = [name for name in _changed(then, now) if name in only]
        tools = _tools(then, now) if "tools" in only else ()
        return (*(_part(name, then, now) for name in named), *tools)
    return (*_values(then, now), *_system(then, now), *_tools(then, now))


def _values(then: SystemPromptSet, now: SystemPromptSet) -> Iterator[str]:
    for name in _PLAIN:
        was, is_ = getattr(then, name), getattr(now, name)
        if was != is_:
            yield f"{name}: {was or 'none'}, now {is_ or 'none'}"
    if bytes(then.schema) != bytes(now.schema):
        yield "the schema of the answer differs"


def _system(then: SystemPromptSet, now: SystemPromptSet) -> Iterator[str]:
    if then.system == now.system:
        return
    changed = _changed(then, now)
    if not changed:
        was, is_ = len(then.system), len(now.system)
        yield f"system text: {was} characters, now {_size(was, is_)}"
    yield from (_part(name, then, now) for name in changed)


def _changed(then: SystemPromptSet, now: SystemPromptSet) -> list[str]:
    names = dict.fromkeys((*dict(then.parts), *dict(now.parts)))
    return [name for name in names if part_of(then, name) != part_of(now, name)]


def _part(name: str, then: SystemPromptSet, now: SystemPromptSet) -> str:
    was, is_ = len(part_of(then, name)), len(part_of(now, name))
    return f"system text, {name}: {was} characters, now {_size(was, is_)}"


def _size(was: int, is_: int) -> str:
    return f"{is_} others" if was == is_ else str(is_)


def _tools(then: SystemPromptSet, now: SystemPromptSet) -> Iterator[str]:
    was, are = ({tool.name: tool for tool in each.tools} for each in (then, now))
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
