"""The rights of a parent, as its children meet them: as they are at that moment."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from refold.engine.judging import judge, mode_of
from refold.engine.world import Record, World
from refold.permissions.facts import Decision, Facts, Touch
from refold.permissions.rules import Rule
from refold.values.rights import Mode


class AsParent:
    """Implements the engine's `Above`. `world` is that of the parent's turn.

    Its rules hold for the place of the child, which may be another; and so do those of
    whoever is above the parent.
    """

    def __init__(self, record: Record, world: World) -> None:
        self._record, self._world = record, world

    def judge(self, found: Touch, facts: Facts) -> Decision:
        world = self._world
        grounds = _There(world.rules, world.mode, lambda: facts)
        return judge(found, grounds, self._record.view, above=world.lineage.above)

    @property
    def mode(self) -> Mode:
        return mode_of(self._world, self._record.view, self._world.lineage.above)

    @property
    def granted(self) -> Sequence[str]:
        above = self._world.lineage.above
        return (*(above.granted if above else ()), *self._record.view.rights.granted)


class _There(Struct, frozen=True):
    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]
