"""Ask a model about a file, once."""

import hashlib
import json
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
STORE = Path("statements.json")
agent = Agent(model="lesson/scripted", schema=SCHEMA)


def statements_about(text):
    """Return the model's statements about this content; stored ones if it was asked before."""
    known = json.loads(STORE.read_text()) if STORE.exists() else {}
    key = hashlib.sha256(text.encode()).hexdigest()
    if key not in known:
        answer = agent.run(f"State facts about this file, with quotes.\n\n{text}").data
        known[key] = answer["statements"]
        STORE.write_text(json.dumps(known))
    return known[key]


def main(path):
    text = path.read_text()
    for statement in statements_about(text):
        start = text.find(statement["quote"])
        if start < 0:
            print(f"dropped: {statement['text']}")
        else:
            line = text.count("\n", 0, start) + 1
            print(f"{path}:{line}: {statement['text']}")


main(Path(sys.argv[1]))
