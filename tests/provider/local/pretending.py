"""A process that behaves as the model's server does, without a model.

It reads its order, says on stderr who it is, and listens nowhere: what is asked
over HTTP is other tests' business. With `fail` it dies instead, with `silent` it
never says that it is ready.
"""

import json
import os
import sys

how = sys.argv[1] if len(sys.argv) > 1 else ""
order = json.loads(sys.stdin.readline())
known = {
    "pid": os.getpid(),
    "order": order,
    "environ": dict(os.environ),
    "cwd": os.getcwd(),
}
sys.stderr.write(json.dumps(known) + "\n")
sys.stderr.flush()
if how == "fail":
    sys.stderr.write("load_model: failed to load model\n")
    sys.exit(1)
if how != "silent":
    sys.stdout.write("http://127.0.0.1:9\n")
    sys.stdout.flush()
sys.stdin.read()
