"""Say what a session did, from nothing but its journal."""

import json
import sys
from pathlib import Path

journal = Path(sys.argv[1])
for line in journal.read_text().splitlines():
    event = json.loads(line)
    print(event["seq"], event["kind"], event["by"])
