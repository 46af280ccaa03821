"""Be the model that writes code, and the model that is asked by it."""

import sys

from refold import Agent
from refold.provider.port import Done, TextDelta

CELL_CODE = """
from collections import Counter

names = glob("report-*.txt").splitlines()
texts = [open(name).read() for name in names]
parts = map_lm(texts, "Which part broke? One word.")
part, count = Counter(parts).most_common(1)[0]
FINAL(f"{part}: {count} of {len(names)}")
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
