"""The rights that a subagent inherits: the present rules, mode and grants of its parent.

`children` passes them to the child's session, and `engine.authorize` applies them to its calls.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from refold.engine.authorize import effective_mode, judge
from refold.engine.world import Record, World
from refold.journal.events.kinds import Entry
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import Rule
from refold.values.modes import Mode

Subscribe = Callable[[Callable[[Entry], None]], Callable[[], None]]


class InheritedRights:
    """The present rights of the parent, as the engine's port `ParentRights`.

    `world` is the world of the parent's turn. The rules of the parent and of all sessions above
    it apply to the workspace of the child, which may be another workspace than the parent's.
    """

    def __init__(self, record: Record, world: World, subscribe: Subscribe) -> None:
        self._record = record
        self._world = world
        self._subscribe = subscribe

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` at each event of the parent and of all sessions above it.

        The returned function ends the subscription.
        """
        grandparent = self._world.lineage.parent
        unsubscribers = [self._subscribe(listener)]
        if grandparent is not None:
            unsubscribers.append(grandparent.subscribe(listener))

        def unsubscribe_all() -> None:
            for unsubscribe in unsubscribers:
                unsubscribe()

        return unsubscribe_all

    def judge(self, access: Access, facts: Facts) -> Decision:
        world = self._world
        policy_context = _ChildPolicyContext(world.rules, world.mode, lambda: facts)
        return judge(access, policy_context, self._record.view, parent=world.lineage.parent)

    @property
    def mode(self) -> Mode:
        return effective_mode(self._world, self._record.view, self._world.lineage.parent)

    @property
    def grants(self) -> Sequence[str]:
        grandparent = self._world.lineage.parent
        own = self._record.view.rights.granted
        return own if grandparent is None else (*grandparent.grants, *own)


class _ChildPolicyContext(Struct, frozen=True):
    """The rules and the mode of the parent, with the facts about the workspace of the child."""

    rules: Sequence[Rule]
    mode: Mode
    facts: Callable[[], Facts]
