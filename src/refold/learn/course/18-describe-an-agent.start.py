"""A second agent that reads and cannot write."""

import sys

from refold import Agent, Profile

reviewer = Profile(
    name="reviewer",
    description="Reads a file and says what would break.",
    prompt="You review code. Be brief.",
)

agent = Agent(
    model="lesson/scripted", mode="accept-edits", agents=[reviewer], agent="reviewer"
)
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
