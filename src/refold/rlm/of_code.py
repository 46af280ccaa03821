"""Children that code starts: each of the agent `rlm`, with Python of its own.

How one is opened, bounded and found again after a crash is the business of
`agents.children`.
"""

from refold.agents.births import Wish
from refold.agents.children import Children, Luggage
from refold.rlm.below import Beginning
from refold.tools.task import Errand, Report

AGENT = "rlm"


class OfCode:
    """Implements `below.Below` with the children of a session."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def of_code(
        self, call_id: str, key: str, n: int, task: str, begins: Beginning
    ) -> Report:
        wish = Wish(call_id, Errand(AGENT, task), key, n, begins.attached)
        end = await self._children.born(wish, Luggage(context=begins.values))
        return Report(end.child, end.status, end.text, end.reason, as_json=end.as_json)
