"""What an edit has broken is in its result, for the model and for a person."""

from collections.abc import Awaitable, Callable, Sequence

from refold.journal.events.kinds import Ended
from refold.journal.store.port import MemoryStore
from refold.permissions.rules import parse
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.tools import Effect
from tests.engine.house import entries, run, world

NEWS = 'pyls reports a new problem caused by this edit:\na.py:2: error: "c" is not defined'


class OneProblem:
    async def begin(self, files: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        async def after() -> str:
            return NEWS

        return after


@tool(Effect.CHANGE)
async def rewrite() -> Reply:
    """Change a file."""
    return Reply("Edited.", (Note("changed a.py"),))


def test_user_sees_each_problem_of_an_edit_that_the_model_sees() -> None:
    store = MemoryStore()
    rules = (parse("rewrite", "allow"),)
    provider = ScriptedProvider([("rewrite", "{}")], "Done.")

    run(
        store,
        world(provider, tools=(rewrite,), rules=rules, edit_checks=OneProblem()),
        "Go.",
    )

    (end,) = [entry.event for entry in entries(store) if isinstance(entry.event, Ended)]
    assert end.text == f"Edited.\n{NEWS}"
    assert end.shown == (Note("changed a.py"), *map(Note, NEWS.splitlines()))
