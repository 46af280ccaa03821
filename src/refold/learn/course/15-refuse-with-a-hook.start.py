"""An agent that may change files, as far as a rule of your team allows it."""

import sys

from refold import Agent

agent = Agent(model="lesson/scripted", mode="accept-edits")
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
