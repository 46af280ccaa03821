"""Copies a world with some fields replaced, in whichever part of it they are."""

from typing import Any

from msgspec.structs import replace

from refold.engine.world import World

_PARTS = ("model", "prompt", "lineage")


def world_with(world: World, **more: Any) -> World:
    """`world`, but for these: fields of it, or of its model, its prompt or its lineage."""
    for part in _PARTS:
        found = getattr(world, part)
        own = {name: more.pop(name) for name in found.__struct_fields__ if name in more}
        if own:
            world = replace(world, **{part: replace(found, **own)})
    return replace(world, **more)
