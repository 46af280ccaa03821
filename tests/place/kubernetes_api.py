"""Serves the part of the Kubernetes API that `kubectl exec` of 1.35 uses. It checks nothing.

    python -m tests.place.kubernetes_api PORT REQUESTS_FILE

It has one pod, pod-1 of the namespace team, which is a shell on this machine. Each requested path is
written to the file as a line. The WebSocket carries a byte for the channel before the data: 0 to 2
are the standard streams, 3 the status at the end, 255 closes a stream.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STATUS, _CLOSE = 0, 3, 255
_COPY_BYTES = 32 * 1024
_POD_PATH = "/api/v1/namespaces/team/pods/pod-1"
_POD = {
    "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "pod-1", "namespace": "team"},
    "spec": {"containers": [{"name": "app", "image": "app"}]}, "status": {"phase": "Running"},
}  # fmt: skip
_ANSWERS: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
                       "verbs": ["get"]}],
    },
    _POD_PATH: _POD,
}  # fmt: skip
_NOT_FOUND = {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
    "message": 'pods "gone" not found', "code": 404,
}  # fmt: skip


class RecordedApi:
    def __init__(self, requests: Path) -> None:
        self._requests = requests

    def answer(self, _connection: ServerConnection, request: Request) -> Response | None:
        with self._requests.open("a") as file:
            file.write(f"{request.path}\n")
        if "Upgrade" in request.headers:
            return None  # exec
        body = _ANSWERS.get(request.path.partition("?")[0], _NOT_FOUND)
        code = 404 if body is _NOT_FOUND else 200
        data = json.dumps(body).encode()
        headers = Headers(
            {"Content-Type": "application/json", "Content-Length": str(len(data))}
        )
        return Response(code, "", headers, data)

    async def run_shell(self, socket: ServerConnection) -> None:
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert shell.stdin
        assert shell.stdout
        assert shell.stderr

        async def copy(stream: asyncio.StreamReader, channel: int) -> None:
            while data := await stream.read(_COPY_BYTES):
                await socket.send(bytes([channel]) + data)

        async def feed(stdin: asyncio.StreamWriter) -> None:
            async for message in socket:
                assert isinstance(message, bytes)
                if message[0] == _STDIN:
                    stdin.write(message[1:])
                    await stdin.drain()
                elif message[0] == _CLOSE:
                    stdin.close()
            stdin.close()  # kubectl was killed

        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(feed(shell.stdin))
            await asyncio.gather(copy(shell.stdout, 1), copy(shell.stderr, 2))
            await shell.wait()
            status: dict[str, Any] = {"metadata": {}, "status": "Success"}
            await socket.send(bytes([_STATUS]) + json.dumps(status).encode())
            feeding.cancel()


async def main() -> None:
    port, requests = int(sys.argv[1]), Path(sys.argv[2])
    api = RecordedApi(requests)
    async with serve(
        api.run_shell, "127.0.0.1", port, process_request=api.answer, subprotocols=[_PROTOCOL],  # pyright: ignore[reportArgumentType]
        max_size=None,
    ):  # fmt: skip
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main())
