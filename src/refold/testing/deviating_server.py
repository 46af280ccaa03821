"""A model server for tests that sometimes deviates from its protocol or fails.

`Deviating` gives scripted answers. Some of them are replaced by overloads or broken
connections, and a given share has a deviation of `deviation_table`. The same seed gives the
same answers.

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
    """The answers of a `wire_server`: those of `reply`, some of them with a failure.

    While `overloaded` returns true, requests are refused with status 529. Of the other answers,
    every `reset_every`-th breaks off in the middle, or none if `reset_every` is 0. Of the
    remaining answers, the share `rate` deviates from the protocol. `happened` counts the
    failures by name.
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
