"""Serves a model without a model: everything of `serve` except llama.cpp.

On stderr, its log, it prints its identity and then each posted request. With `fail` it dies
while loading, with `silent` it loads until the file `go` exists beside the model, with
`forgets` it cannot restore a state that it saved.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from refold.provider.local.serve import ServeRequest, serve

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def print_json(known: object) -> None:
    sys.stderr.write(json.dumps(known) + "\n")
    sys.stderr.flush()


def load_model(order: ServeRequest) -> tuple[str, object]:
    data = {
        "model": order.model,
        "key": order.key,
        "context": order.context,
        "template": order.template,
        "threads": order.threads,
    }
    print_json(
        {"pid": os.getpid(), "order": data, "environ": dict(os.environ), "cwd": os.getcwd()}
    )
    if HOW == "fail":
        sys.stderr.write("load_model: failed to load model\n")
        sys.exit(1)
    while HOW == "silent" and not Path(order.model).with_name("go").exists():
        time.sleep(0.01)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            print_json(
                [self.path, self.headers["Authorization"] == f"Bearer {order.key}", body]
            )
            if "action=save" in self.path:
                (Path(order.saved).parent / body["filename"]).write_bytes(b"state")
            wrong = HOW == "forgets" and "action=restore" in self.path
            self.send_response(400 if wrong else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=http.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{http.server_port}", http


serve(load_model)
