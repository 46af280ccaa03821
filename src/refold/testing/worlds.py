"""A world for a test, made from another, without saying in which of its parts things stand."""

from typing import Any

from msgspec.structs import replace

from refold.engine.world import World

_PARTS = ("mind", "brief", "lineage")


def world_with(world: World, **more: Any) -> World:
    """`world`, but for these: fields of it, or of its mind, its brief or its lineage."""
    for part in _PARTS:
        found = getattr(world, part)
        own = {name: more.pop(name) for name in found.__struct_fields__ if name in more}
        if own:
            world = replace(world, **{part: replace(found, **own)})
    return replace(world, **more)
