"""Say what a session did, from nothing but its journal."""

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

journal = Path(sys.argv[1])
calls, refused, tokens, chain = Counter(), 0, 0, "0" * 16
for line in journal.read_text().splitlines():
    event = json.loads(line)
    data = event["data"]
    if event["kind"] == "ModelAnswered":
        tokens += data["usage"]["output"]
        parts = data["message"]["parts"]
        calls.update(part["name"] for part in parts if part["type"] == "call")
    elif event["kind"] == "Judged" and data["verdict"] == "deny":
        refused += 1
    rest = line[line.index('"seq"') :]
    chain = hashlib.sha256((chain + rest).encode()).hexdigest()[:16]
    if chain != event["h"]:
        print(f"line {event['seq']} was changed")
for name, count in sorted(calls.items()):
    print(f"{name}: {count}")
print(f"refused: {refused}")
print(f"tokens: {tokens}")
