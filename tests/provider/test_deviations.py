"""Each row of the table of deviations, through a real client and a session."""

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.policies.conversation import converse
from refold.engine.world import Model, World
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.provider.retry import RetryingProvider
from refold.testing.deviating_server import Deviating
from refold.testing.deviation_table import Deviation, deviations
from refold.testing.providers import Reply, StrictProvider
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest
from refold.values.messages import ToolResult
from tests.engine.house import converse_once, world
from tests.provider.wires import WIRES, open_wire

BOOKS = Reply("I book it.", (("book", '{"what":"taxi"}'),), "A taxi.")


async def no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


async def run(
    deviation: Deviation, orders: list[str], *answers: Answer
) -> tuple[View, MemoryStore, int]:
    store = MemoryStore()
    async with open_wire(deviation.wire, *answers) as (provider, server):
        patient = RetryingProvider(provider, sleep=no_sleep)
        here: World = world(patient, orders, policies=(converse,))
        here = replace(here, model=Model(StrictProvider(patient), f"{deviation.wire}/m-1"))
        view = await converse_once(store, here, "A taxi, please.")
        return view, store, len(server.heard)


def results(view: View) -> list[ToolResult]:
    parts = [p for s in view.conversation.messages for p in s.message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize("row", deviations(), ids=lambda row: f"{row.wire}: {row.name}")
def test_each_deviation_is_accepted_retried_or_reported_as_listed(row: Deviation) -> None:
    orders: list[str] = []
    plain = [answer(row.wire, BOOKS)] if row.outcome == "asked again" else []
    last = answer(row.wire, Reply("Done."))

    view, _, requests = anyio.run(run, row, orders, row.make(BOOKS), *plain, last)

    assert (view.turn.outcome, view.turn.answer) == ("answered", "Done.")
    assert requests == (3 if plain else 2)
    if row.outcome == "told":
        assert orders == []
        (result,) = results(view)
        assert result.text.startswith("The arguments are not a JSON object: ")
    else:
        assert [order.strip() for order in orders] == ["taxi"]
        message = view.conversation.messages[1].message
        assert message.text.strip() == "I book it."


@pytest.mark.parametrize("wire", WIRES)
def test_deviating_server_repeats_its_deviations_for_the_same_seed(wire: str) -> None:
    def bodies(seed: int) -> list[object]:
        server = Deviating(wire, lambda _: BOOKS, seed=seed, rate=0.5, reset_every=5)  # type: ignore[arg-type]
        request = ReceivedRequest("POST", "/", {}, b"")
        return [server(request).body for _ in range(20)]

    assert bodies(1) == bodies(1)
    assert bodies(1) != bodies(2)


def test_deviating_server_counts_its_deviations() -> None:
    busy = iter([True, False, False, False, False, False])
    server = Deviating(
        "openai-chat",
        lambda _: BOOKS,
        rate=0.0,
        reset_every=2,
        overloaded=lambda: next(busy),
    )
    request = ReceivedRequest("POST", "/", {}, b"")

    answers = [server(request) for _ in range(6)]

    assert server.happened == {"overloaded": 1, "reset": 2}
    assert [a.status for a in answers] == [529, 200, 200, 200, 200, 200]
    assert [a.then for a in answers] == ["end", "end", "cut", "end", "cut", "end"]
