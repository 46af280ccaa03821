"""Asks an agent with refold's own tools one question: `python examples/minimal.py`."""

from refold import Agent

agent = Agent(mode="plan")  # it may read, and change nothing
result = agent.run("What is in this directory? Answer in one sentence.")
print(result.text)
print(f"{result.outcome}, {result.usage.output} tokens")
