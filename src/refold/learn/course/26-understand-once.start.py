"""Ask a model about a file, once."""

import sys
from pathlib import Path

from refold import Agent

TEXT = {"type": "string"}
STATEMENT = {
    "type": "object",
    "properties": {"text": TEXT, "quote": TEXT},
    "required": ["text", "quote"],
}
SCHEMA = {
    "type": "object",
    "properties": {"statements": {"type": "array", "items": STATEMENT}},
    "required": ["statements"],
}
agent = Agent(model="lesson/scripted", schema=SCHEMA)


def main(path):
    text = path.read_text()
    answer = agent.run(f"State facts about this file, with quotes.\n\n{text}").data
    for statement in answer["statements"]:
        print(statement["text"])


main(Path(sys.argv[1]))
