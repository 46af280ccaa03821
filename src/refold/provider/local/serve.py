"""The process that holds the model: llama.cpp and its HTTP server, on loopback only.

Run as `python -m refold.provider.local.serve`. One JSON line on stdin says what
to load; when it is loaded, one line on stdout says where it listens. It lives
as long as its stdin is open: whoever started it may die as it likes.
"""

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Order(Struct, frozen=True):
    """What to serve. `key` must be shown by whoever asks: loopback is not private."""

    path: str
    key: str
    context: int  # tokens
    threads: int
    template: str = ""  # how talk is put before the model; "": its own way


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    # From here on the only use of stdin is to end.
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    server = _serve(order)  # it stops when nobody holds it any more
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


def cores() -> int:
    """How many cores we may really use: llama.cpp with more threads crawls."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    usable = usable or os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit
        pass
    return min(usable, 16)


def _serve(order: Order) -> Any:
    llama: Any = importlib.import_module("xllamacpp")  # it has no types

    params = llama.CommonParams()
    params.model.path = order.path
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system chooses a free one
    params.api_keys = [order.key]
    params.cors_origins = ""  # no web page has any business here
    params.n_ctx = order.context
    params.n_parallel = 1
    params.cpuparams.n_threads = order.threads
    params.cpuparams_batch.n_threads = order.threads
    params.use_jinja = True
    if order.template:
        params.chat_template = order.template
    params.ui = False
    params.endpoint_slots = False  # it would tell what was asked
    return llama.Server(params)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
