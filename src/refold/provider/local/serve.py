"""The process that serves an embedded model, and exits when it is no longer needed.

`server` starts the process in a new process session, so that it outlives its starter, and sends
a `ServeRequest` on stdin. The process loads the model and writes a record with its address.
Requests go directly to llama.cpp, not through this module.

It exits when it has not been used for a while, when its record is deleted (which is how others
ask it to exit), when the user has logged out, and, while idle, when the machine runs short of
memory. A process that makes a request holds a shared lock on `ServeRequest.use`, which the
kernel releases if that process is killed.
"""

import fcntl
import importlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from refold.safe_open import create_file, open_checked

MIN_FREE_SHARE = 0.05  # of the machine's memory: if less is available, an idle server exits
_WATCH_SECONDS = 1.0  # the time between two checks
_PREFILL_TIMEOUT_SECONDS = 600.0


class ServeRequest(Struct, frozen=True, kw_only=True):
    """What the process should serve, how, and for how long.

    Each HTTP request must have `key`, because every user of the machine can reach the port.
    """

    model: str  # path of the GGUF file
    key: str
    record: str  # path of a `ServerRecord`, written when it serves
    use: str  # path of a lock that users share; its mtime is the last use
    starting: int  # descriptor of the lock that its starter holds until it serves
    keep: float  # seconds after the last use
    context: int  # tokens of one request
    slots: int  # requests computed at the same time
    threads: int
    template: str = ""  # the chat template; "": the model's own
    prefix: str = ""  # the system text with which most requests begin
    saved: str = ""  # path of the saved state after `prefix`; read, or written once
    login: str = ""  # directory that exists while the user is logged in; "": not known


class ServerRecord(Struct, frozen=True, kw_only=True):
    """The record with which other processes find a running server.

    `began` is the start time of the process, because `pid` may be reused by a later process.
    """

    url: str
    key: str
    pid: int
    began: str
    model: str
    since: float  # seconds since 1970
    keep: float


class ServerFacts(Struct, frozen=True):
    """The facts from which a server decides whether to exit."""

    recorded: bool = True  # its record exists and names it
    logged_in: bool = True
    in_use: bool = False
    idle: float = 0.0  # seconds since the last use
    memory: float = 1.0  # available share of the machine's memory


def reason_to_end(facts: ServerFacts, keep: float) -> str:
    """Return the reason why the server should exit now, or "" if it should not.

    `keep` is the time in seconds that it runs without being used.
    """
    if not facts.recorded:
        return "its record is gone"
    if not facts.logged_in:
        return "the user has logged out"
    if facts.in_use:
        return ""
    if facts.memory < MIN_FREE_SHARE:
        return "memory is short"
    return f"unused for {facts.idle:.0f} s" if facts.idle >= keep else ""


def process_start(pid: int) -> str:
    """Return the start time of a process, in the kernel's own unit; "" if it does not run.

    Without /proc the result is "?" for each running process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        if os.path.isdir("/proc/self"):
            return ""
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "?"
    _, _, after_name = stat.rpartition(b")")  # the name may contain blanks and brackets
    fields = after_name.split()
    state, start_time = fields[0], fields[19]  # the fields 3 and 22 in proc(5)
    has_ended = state in (b"Z", b"X")  # it is not reaped yet
    return "" if has_ended else start_time.decode()


def serve(load: Callable[[ServeRequest], tuple[str, object]]) -> NoReturn:
    """Serve the model that the `ServeRequest` on stdin names, until there is a reason to exit.

    `load` starts llama.cpp. It returns the URL, and an object that must stay referenced while
    serving.
    """
    serve_request = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServeRequest)
    os.umask(0o077)
    url, _server = load(serve_request)
    if serve_request.prefix:
        _read_prefix(serve_request, url)
    _write_record(serve_request, url)
    _report_ready(url)
    os.close(serve_request.starting)  # this inherited descriptor holds the lock
    _watch(serve_request)


def _write_record(serve_request: ServeRequest, url: str) -> None:
    """Write the record by which sessions find this server. It replaces an earlier one."""
    record = ServerRecord(
        url=url,
        key=serve_request.key,
        pid=os.getpid(),
        began=process_start(os.getpid()),
        model=serve_request.model,
        since=time.time(),
        keep=serve_request.keep,
    )
    draft = Path(f"{serve_request.record}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    create_file(draft, msgspec.json.encode(record))
    os.replace(draft, serve_request.record)


def _report_ready(url: str) -> None:
    """Print the address for the starter. Then open /dev/null as standard input and output."""
    try:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # its starter was killed; others may use the server
        pass
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _read_prefix(serve_request: ServeRequest, url: str) -> None:
    """Put the model's state after reading `prefix`, a system text, into each slot.

    A slot of the server computes one request at a time. Reading the prefix takes seconds, but
    restoring a state that llama.cpp has saved takes milliseconds. A failure costs only time,
    because the first request then reads the prefix itself.
    """
    name = os.path.basename(serve_request.saved)
    try:
        if not os.path.exists(serve_request.saved):
            system = {"role": "system", "content": serve_request.prefix}
            messages = [system, {"role": "user", "content": ""}]
            body = {"messages": messages, "max_tokens": 1, "id_slot": 0}
            _post(serve_request, url, "/v1/chat/completions", body)
            _post(serve_request, url, "/slots/0?action=save", {"filename": name})
        for slot in range(serve_request.slots):
            _post(serve_request, url, f"/slots/{slot}?action=restore", {"filename": name})
        os.utime(serve_request.saved)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"refold: the prefix is not restored: {error}\n")
        Path(serve_request.saved).unlink(missing_ok=True)


def _post(serve_request: ServeRequest, url: str, path: str, body: dict[str, Any]) -> None:
    """Send a request to this process's own server, never through a proxy. Raises `OSError`."""
    headers = {
        "Authorization": f"Bearer {serve_request.key}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=_PREFILL_TIMEOUT_SECONDS) as answer:
        answer.read()


def _watch(serve_request: ServeRequest) -> NoReturn:
    """Wait until there is a reason to exit, and exit.

    An idle server exits with the exclusive lock, so that no session uses it meanwhile.
    """
    use_lock = open_checked(serve_request.use, os.O_RDWR | os.O_CREAT)
    os.utime(use_lock)

    def on_sigterm(_signal: int, _frame: object) -> None:
        _exit(serve_request)

    signal.signal(signal.SIGTERM, on_sigterm)
    while True:
        alone = _try_lock(use_lock)
        facts = _observe(serve_request, use_lock, alone=alone)
        if reason_to_end(facts, serve_request.keep):
            _exit(serve_request)
        if alone:
            fcntl.flock(use_lock, fcntl.LOCK_UN)
        time.sleep(_WATCH_SECONDS)


def _observe(serve_request: ServeRequest, use_lock: int, *, alone: bool) -> ServerFacts:
    """Return the present facts. `alone` says that no session has locked `use_lock`."""
    return ServerFacts(
        recorded=_is_our_record(serve_request.record),
        logged_in=not serve_request.login or os.path.isdir(serve_request.login),
        in_use=not alone,
        idle=time.time() - os.fstat(use_lock).st_mtime,
        memory=available_memory(),
    )


def _exit(serve_request: ServeRequest) -> NoReturn:
    """Exit, and delete the record unless it belongs to a later server."""
    if _is_our_record(serve_request.record):
        Path(serve_request.record).unlink(missing_ok=True)
    os._exit(0)


def _try_lock(file: int) -> bool:
    """Take the exclusive lock of an open file. Return False if another process has a lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_our_record(record: str) -> bool:
    """Whether the record names this process. False if it is missing or invalid."""
    try:
        server = msgspec.json.decode(Path(record).read_bytes(), type=ServerRecord)
    except (OSError, msgspec.MsgspecError):
        return False
    return server.pid == os.getpid()


def available_memory() -> float:
    """Return the available share of the machine's memory, from 0 to 1; 1 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 1.0
    sizes = {
        name: int(amount.split()[0])
        for name, _, amount in (line.partition(":") for line in lines)
    }
    available, total = sizes.get("MemAvailable"), sizes.get("MemTotal")
    return available / total if available is not None and total else 1.0


def load_llama(serve_request: ServeRequest) -> tuple[str, object]:
    """Load the model with llama.cpp. Return its URL, and an object to keep while it serves."""
    # the package has no type annotations
    xllamacpp: Any = importlib.import_module("xllamacpp")

    params = xllamacpp.CommonParams()
    params.model.path = serve_request.model
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system chooses a free port
    params.api_keys = [serve_request.key]
    params.cors_origins = ""  # no web page may call it
    # Requests share the context, because few are long.
    params.n_ctx = serve_request.context * min(serve_request.slots, 2)
    params.kv_unified = True
    params.n_parallel = serve_request.slots
    params.cache_ram_mib = 512  # for states of conversations that have lost their slot
    # Idle slots keep the prefix for sessions that begin at the same time. Otherwise all of
    # them are cleared when one begins, and only one saved copy of the prefix is left.
    params.cache_idle_slots = False
    params.cpuparams.n_threads = serve_request.threads
    params.cpuparams_batch.n_threads = serve_request.threads
    params.warmup = False  # reading the prefix warms up, too
    params.use_jinja = True
    if serve_request.template:
        params.chat_template = serve_request.template
    params.ui = False
    params.endpoint_slots = False  # it would reveal the prompts
    if serve_request.saved:
        params.slot_save_path = os.path.join(os.path.dirname(serve_request.saved), "")
    server = xllamacpp.Server(params)
    return server.listening_address, server


if __name__ == "__main__":
    serve(load_llama)
