"""A server that deviates from its protocol now and then, in the weather of a provider.

`Deviating` answers requests with a script, and there are overloads, broken connections, and some
deviation of `deviation_table` in a share of its answers. The same seed gives the same.

    async with wire_server(Deviating("openai-chat", reply, seed=7, rate=0.03)) as server:
        ...
"""

from collections.abc import Callable
from random import Random

from refold.testing.deviation_table import JSON, OVERLOADED, cut_in_the_middle, deviations
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest


class Deviating:
    """Answers for `wire_server`: those of `reply`, in bad weather.

    Every `reset_every`-th answer breaks off in the middle (0: none does); while `overloaded`
    says so, requests are refused with 529; and a share of `rate` of the other answers deviates.
    `happened` counts what was done, by name.
    """

    def __init__(
        self,
        wire: WireName,
        reply: Callable[[ReceivedRequest], Reply],
        *,
        seed: int = 0,
        rate: float = 0.03,
        reset_every: int = 0,
        overloaded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._wire: WireName = wire
        self._reply, self._random = reply, Random(seed)
        self._rate, self._reset_every, self._overloaded = rate, reset_every, overloaded
        self._streams = 0
        self.happened: dict[str, int] = {}

    def __call__(self, request: ReceivedRequest) -> Answer:
        if self._overloaded():
            self._count("overloaded")
            return Answer(OVERLOADED, 529, JSON)
        reply = self._reply(request)
        self._streams += 1
        if self._reset_every and self._streams % self._reset_every == 0:
            self._count("reset")
            return cut_in_the_middle(self._wire, reply)
        if self._random.random() < self._rate:
            known = [d for d in deviations(self._wire) if reply.calls or not d.calls]
            deviation = self._random.choice(known)
            self._count(deviation.name)
            return deviation.make(reply)
        return answer(self._wire, reply)

    def _count(self, name: str) -> None:
        self.happened[name] = self.happened.get(name, 0) + 1
