"""Check what an agent did, when it believes that it is done."""

import sys

from refold import Agent

agent = Agent(model="lesson/scripted", mode="accept-edits")
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
