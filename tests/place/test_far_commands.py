"""Commands on the far side of a pipe, without the pipe."""

import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refold.place.command_starter import CommandStarter
from refold.place.far.far_call import FarCall
from refold.place.far.far_commands import run_command

_CONFINEMENT: Mapping[str, object] = {
    "writes": True, "network": False, "opened": [], "seen": [], "narrow": False, "of_git": [],
    "hosts": False,
}  # fmt: skip


def command(line: str, cwd: Path) -> dict[str, Any]:
    return {
        "command": line, "cwd": str(cwd), "seconds": 30, "confines": _CONFINEMENT,
        "input": False, "limits": None, "seen": [], "own_tmp": False, "environ": {},
        "used": False, "hidden": [],
    }  # fmt: skip


def test_stopping_a_command_elsewhere_after_its_end_does_nothing(tmp_path: Path) -> None:
    """The other side sends it before it has read the end, when the descriptors are closed
    already.
    """
    sent = list[str]()

    def send(record: Mapping[str, Any], _raw: bytes) -> None:
        sent.append(record["kind"])

    call = FarCall(send, 1)
    run_command(call, CommandStarter(os.environ), command("echo out", tmp_path))
    pipes = [os.pipe() for _ in range(4)]  # these take the numbers of closed descriptors

    call.stop()

    assert sent == ["output", "end"]
    assert select.select([reading for reading, _ in pipes], [], [], 0)[0] == []
    for ends in pipes:
        for end in ends:
            os.close(end)
