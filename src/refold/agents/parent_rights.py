"""The rights of a parent, as its children meet them: as they are at that moment."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from refold.engine.authorize import judge, mode_of
from refold.engine.world import Record, World
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import Rule
from refold.values.modes import Mode


class InheritedRights:
    """Implements the engine's `Above`. `world` is that of the parent's turn.

    Its rules hold for the place of the child, which may be another; and so do those of
    whoever is above the parent.
    """

    def __init__(self, record: Record, world: World) -> None:
        self._record, self._world = record, world

    def judge(self, found: Access, facts: Facts) -> Decision:
        world = self._world
        grounds = _There(world.rules, world.mode, lambda: facts)
        return judge(found, grounds, self._record.view, above=world.lineage.parent)

    @property
    def mode(self) -> Mode:
        return mode_of(self._world, self._record.view, self._world.lineage.parent)

    @property
    def granted(self) -> Sequence[str]:
        above = self._world.lineage.parent
        return (*(above.granted if above else ()), *self._record.view.rights.granted)


class _There(Struct, frozen=True):
    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]
