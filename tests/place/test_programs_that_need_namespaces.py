"""What works in the sandbox, and what fails because a command makes no namespaces.

With the real programs. `test_as_an_ordinary_user` runs these tests again where the machine's tests
run as root: the kernel lets no root without capabilities map itself.
"""

import os
import shutil
from collections.abc import Iterator

import anyio
import pytest

from refold.testing.places import ScriptedCommands, temporary_place
from refold.tools.shell import bash
from refold.values.namespaces import NAMESPACES_REFUSED
from tests.place.walled import Walled, home_on_disk, needs_bubblewrap, walled

pytestmark = pytest.mark.peer

BROWSER = (
    "chromium --headless --disable-gpu --user-data-dir=/tmp/profile {} "
    "--dump-dom 'data:text/html,<p>a page</p>' 2>&1"
)
PODMAN = (
    "export HOME=/tmp/home XDG_RUNTIME_DIR=/tmp/run; mkdir -p /tmp/home /tmp/run; "
    "podman --root /tmp/images --runroot /tmp/containers --storage-driver vfs {} 2>&1"
)
NEED = {
    "a browser": BROWSER.format(""),
    "unshare": "unshare -Um true",
    "unshare with a name of its own": "unshare -rm true",
    "bubblewrap": "bwrap --ro-bind / / --dev /dev true",
    "podman": PODMAN.format("info"),
    "podman that builds an image": "echo FROM scratch > Dockerfile; " + PODMAN.format("build ."),
}  # fmt: skip
FAIL_ANYWAY = {
    "a missing file": "cat missing",
    "a setuid bit": "touch f; chmod 4755 f",
    "a file of root": "chown 0:0 /etc/passwd",
    "no daemon": "docker ps",
    "a mount": "mount -t tmpfs none /mnt",
    "the first process": "strace -p 1",
    "a leak": "gcc -g -fsanitize=leak leak.c -o leak && ./leak",
}
WORK = {
    "a browser without its sandbox": (BROWSER.format("--no-sandbox"), "a page"),
    "strace": ("strace -f -e trace=openat true 2>&1", "exited with 0"),
    "strace on a child": (
        "sleep 9 & strace -o /tmp/log -p $! & sleep 0.4; kill %1; wait; cat /tmp/log",
        "killed by SIGTERM",
    ),
    "gdb": ("gdb -q -batch -ex run --args true 2>&1", "exited normally"),
    "gdb on a child": (
        "sleep 9 & gdb -q -batch -p $! -ex 'info inferiors' 2>&1; kill %1", "detached"
    ),
    "the address sanitizer": (
        "gcc -g -fsanitize=address leak.c -o a && ./a 2>&1 | cat", "LeakSanitizer: detected"
    ),
    "an overflow": (
        "gcc -g -fsanitize=address leak.c -o a && ./a 1 2>&1 | cat", "heap-buffer-overflow"
    ),
    "the leak sanitizer": (
        "gcc -g -fsanitize=leak leak.c -o l && ./l 2>&1 | cat", "detected memory leaks"
    ),
    "the thread sanitizer": (
        "gcc -g -fsanitize=thread leak.c -o t && ./t && echo ran", "ran"
    ),
}  # fmt: skip
LEAK = """
#include <stdlib.h>
int main(int count, char **words) {
    volatile char *block = malloc(8);
    if (count > 1) block[9] = 1;
    block = 0;
    return 0;
}
"""


@pytest.fixture(params=[False, True], ids=["no namespaces", "namespaces"])
def confined(request: pytest.FixtureRequest) -> Iterator[Walled]:
    needs_bubblewrap()
    with (
        home_on_disk() as home,
        walled(home / "ws", user_namespaces=request.param) as place,
    ):
        (place.root / "leak.c").write_text(LEAK)
        yield place


def skip_without(command: str) -> None:
    programs = [word for word in command.split() if word in PROGRAMS]
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed here (optional)")


PROGRAMS = {"chromium", "unshare", "bwrap", "podman", "docker", "strace", "gdb", "gcc"}


def run_command(room: Walled, command: str) -> tuple[bool, str]:
    """Return whether it succeeded, and what the model reads about it."""
    done = room.run(command)
    with temporary_place(ScriptedCommands({command: done})) as place:
        reply = anyio.run(place.use, bash, {"command": command})
    return done.code == 0, reply.text


@pytest.mark.parametrize("case", NEED)
def test_a_program_that_needs_namespaces_works_or_the_result_names_the_setting(
    confined: Walled, case: str
) -> None:
    skip_without(NEED[case])
    if os.geteuid() == 0 and (
        case == "a browser" or confined.sandbox.config.user_namespaces
    ):
        pytest.skip("the kernel lets no root without capabilities map itself (optional)")

    succeeded, text = run_command(confined, NEED[case])

    works = confined.sandbox.config.user_namespaces
    assert (succeeded, NAMESPACES_REFUSED in text) == (works, not works), text


def test_a_namespace_failure_in_a_pipe_names_the_setting(confined: Walled) -> None:
    skip_without("unshare")

    succeeded, text = run_command(confined, "unshare -Um true 2>&1 | cat; true")
    _, quiet = run_command(confined, "echo 'unshare: Operation not permitted'")

    assert succeeded
    assert (NAMESPACES_REFUSED in text) != confined.sandbox.config.user_namespaces
    assert NAMESPACES_REFUSED not in quiet


@pytest.mark.parametrize("case", FAIL_ANYWAY)
def test_a_failure_without_namespaces_does_not_name_the_setting(
    confined: Walled, case: str
) -> None:
    skip_without(FAIL_ANYWAY[case])

    succeeded, text = run_command(confined, FAIL_ANYWAY[case])

    assert (succeeded, NAMESPACES_REFUSED in text) == (False, False), text


@pytest.mark.parametrize("case", WORK)
def test_programs_of_developers_work_without_namespaces(
    confined: Walled, case: str
) -> None:
    command, words = WORK[case]
    skip_without(command)

    _, text = run_command(confined, command)

    assert words in text
    assert NAMESPACES_REFUSED not in text
