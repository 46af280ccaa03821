"""Be the model that writes code, and the model that is asked by it."""

import sys

from refold import Agent
from refold.provider.port import Done, TextDelta

CELL_CODE = """
names = glob("report-*.txt").splitlines()
print(names)
"""


class TwoModels:
    async def stream(self, request):
        text = request.messages[-1].message.text
        if "Which part broke?" in text:
            words = text.split()
            yield TextDelta(words[words.index("The") + 1])
        else:
            yield TextDelta(f"```python\n{CELL_CODE}```\n")
        yield Done()


agent = Agent(provider=TwoModels(), agent="rlm")
print(agent.run(" ".join(sys.argv[1:])).text)
