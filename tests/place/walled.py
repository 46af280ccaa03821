"""A workspace with sandboxed commands, beside things that must not change."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from refold.place.commands import ShellCommands
from refold.place.limits import Limits
from refold.place.port import Finished
from refold.place.sandbox import Sandbox, find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.values.tools import Confinement

LONG = 30.0  # seconds; no test comes near


class Walled:
    def __init__(self, root: Path, sandbox: Sandbox, limits: Limits) -> None:
        self.root, self.sandbox = root, sandbox
        self.commands = ShellCommands(os.environ, lambda: sandbox, limits)

    def run(
        self,
        command: str,
        *,
        seconds: float = LONG,
        writes: bool = True,
        network: bool = False,
        opened: tuple[Path, ...] = (),
        on_output: Callable[[str], None] | None = None,
    ) -> Finished:
        confines = Confinement(writes, network, tuple(map(str, opened)))

        async def use() -> Finished:
            return await self.commands.run(
                command, cwd=str(self.root), seconds=seconds,
                confines=confines, on_output=on_output,
            )  # fmt: skip

        return anyio.run(use)


@contextmanager
def walled(
    root: Path,
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    **wish: object,
) -> Generator[Walled]:
    root.mkdir(exist_ok=True)
    wish = {"quarantine": str(root.resolve()) + "-quarantine", **wish}
    wanted = SandboxConfig(roots=(str(root.resolve()),), **wish)  # pyright: ignore[reportArgumentType] - as given
    sandbox = find_sandbox(os.environ if environ is None else environ, wanted)
    result = Walled(root.resolve(), sandbox, limits or Limits())
    try:
        yield result
    finally:
        result.commands.close()


@contextmanager
def home_on_disk() -> Generator[Path]:
    """An empty home. Not below /tmp: that of the machine is seen by no command anyway."""
    real = os.environ.get("TESTS_ON_DISK") or pwd.getpwuid(os.getuid()).pw_dir
    with tempfile.TemporaryDirectory(prefix=".refold-test-", dir=real) as folder:
        yield Path(folder).resolve()


def needs_bubblewrap() -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed here")
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=("/",)))
    if sandbox.kind != "bubblewrap":
        pytest.skip(sandbox.notice)


def list_marked(mark: str) -> list[str]:
    """Processes, ours left out, that carry this word in their environment."""
    texts = list[str]()
    for number in filter(str.isdigit, os.listdir("/proc")):
        about = Path("/proc", number)
        try:
            if (
                mark.encode() in (about / "environ").read_bytes()
                and int(number) != os.getpid()
            ):
                texts.append((about / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return texts
