"""Pods of Kubernetes: what is asked of kubectl, and the real kubectl with an API that plays a cluster.

No test has a cluster. With kubectl on PATH the second half runs, too.
"""

import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.errors import ToolFailed
from refold.place.elsewhere.address import parse_address
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_files import PlaceFiles
from refold.place.port import Real

_SETTINGS = PlaceSettings({"profile": "off", "network": True, "user_namespaces": False})
_DEFAULTED = 'Defaulted container "app" out of: app, sidecar'
_NOT_FOUND = 'Error from server (NotFound): pods "pod-1" not found'
_CONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """Return an environment with a `kubectl` that notes its arguments, and then runs this."""
    program = folder / "bin/kubectl"
    program.parent.mkdir()
    arguments = shlex.quote(str(folder / "arguments"))
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {arguments}\n{script}\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(folder)}


def open_pod(folder: Path, environ: dict[str, str], pod: str = "pod-1") -> Pipe:
    (folder / "work").mkdir(exist_ok=True)
    return Pipe(parse_address(f"k8s://team/{pod}{folder}/work"), _SETTINGS, environ)


@pytest.mark.slow  # the connection sends the program
def test_a_pod_is_reached_by_exec_of_a_shell_and_notes_of_kubectl_do_no_harm(
    tmp_path: Path,
) -> None:
    script = f"echo {shlex.quote(_DEFAULTED)} >&2\nexec /bin/sh"
    pipe = open_pod(tmp_path, stand_in(tmp_path, script))
    (tmp_path / "work/a.txt").write_text("hello")

    files = PlaceFiles(pipe, pipe.greeting.root)
    content = files.read(files.real("a.txt"))
    pipe.close()

    assert content == b"hello"
    assert (tmp_path / "arguments").read_text().split() == [
        "exec", "-i", "-n", "team", "pod-1", "--", "/bin/sh",
    ]  # fmt: skip


def test_the_error_for_a_missing_pod_is_that_of_kubectl(tmp_path: Path) -> None:
    environ = stand_in(tmp_path, f"echo {shlex.quote(_NOT_FOUND)} >&2\nexit 1")
    pipe = open_pod(tmp_path, environ)

    with pytest.raises(ToolFailed) as failed:
        _ = pipe.greeting

    assert _NOT_FOUND in str(failed.value)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a kubectl whose cluster is played."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed (optional)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "config"
    config.write_text(_CONFIG.format(port=port))
    command_line = [sys.executable, "-m", "tests.place.kubernetes_api", str(port)]
    with subprocess.Popen(
        [*command_line, tmp_path / "requests"], stdout=subprocess.PIPE
    ) as api:
        assert api.stdout
        assert api.stdout.readline() == b"ready\n"
        path = f"{Path(str(shutil.which('kubectl'))).parent}:/usr/bin:/bin"
        yield {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(config)}
        api.terminate()


@pytest.mark.peer
def test_kubectl_carries_a_large_file_to_a_pod_and_back(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    pipe = open_pod(tmp_path, cluster)
    files, content = PlaceFiles(pipe, pipe.greeting.root), bytes(range(256)) * 20_000
    real = files.real("large")

    files.write(real, content, expect="")
    (there,) = files.only([real]).items(Real(files.roots[0]))
    back = files.read(real, len(content))
    pipe.close()
    requests = (tmp_path / "requests").read_text().splitlines()

    assert (there.size, back) == (len(content), content)
    assert requests[-1] == (
        "/api/v1/namespaces/team/pods/pod-1/exec?command=%2Fbin%2Fsh&container=app"
        "&stderr=true&stdin=true&stdout=true"
    )
    with pytest.raises(ToolFailed, match="cannot be reached: it ended at once: Error from"):
        _ = open_pod(tmp_path, cluster, "gone").greeting
