"""Opens a workspace whose commands run in a sandbox."""

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
from refold.place.elsewhere.place_commands import PlaceCommands
from refold.place.limits import Limits
from refold.place.port import Finished
from refold.place.sandbox import Sandbox, find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.values.tools import Confinement
from tests.place.places import CONFINED_SETTINGS
from tests.place.ports import Port, elsewhere

LONG = 30.0  # seconds, much more than a command of a test takes


class Walled:
    def __init__(
        self,
        root: Path,
        sandbox: Sandbox,
        limits: Limits,
        commands: PlaceCommands | None = None,
    ) -> None:
        self.root, self.sandbox = root, sandbox
        self.commands = commands or ShellCommands(os.environ, lambda: sandbox, limits)

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

        async def main() -> Finished:
            return await self.commands.run(
                command, cwd=str(self.root), seconds=seconds,
                confines=confines, on_output=on_output,
            )  # fmt: skip

        return anyio.run(main)


@contextmanager
def walled(
    root: Path,
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    **wish: object,
) -> Generator[Walled]:
    root.mkdir(exist_ok=True)
    if port := elsewhere():
        yield _walled_elsewhere(port, root.resolve(), environ, limits, wish)
        return
    wish = {"quarantine": str(root.resolve()) + "-quarantine", **wish}
    wanted = SandboxConfig(roots=(str(root.resolve()),), **wish)  # pyright: ignore[reportArgumentType] - as given
    sandbox = find_sandbox(os.environ if environ is None else environ, wanted)
    walled_workspace = Walled(root.resolve(), sandbox, limits or Limits())
    try:
        yield walled_workspace
    finally:
        walled_workspace.commands.close()


def _walled_elsewhere(
    port: Port,
    root: Path,
    environ: Mapping[str, str] | None,
    limits: Limits | None,
    wish: dict[str, object],
) -> Walled:
    if environ is not None:
        pytest.skip("optional over a pipe: the environment of a place is its own")
    own = {name: wish.pop(name, value) for name, value in CONFINED_SETTINGS.items()}
    if wish:
        pytest.skip(f"optional over a pipe: a place is not told {', '.join(wish)}")
    config = SandboxConfig(roots=(str(root),), profile=own["profile"])  # pyright: ignore[reportArgumentType] - as given
    place = port.open_place(root, own, limits)
    sandbox = find_sandbox(os.environ, config)
    return Walled(root, sandbox, limits or Limits(), place.commands)


@contextmanager
def home_on_disk() -> Generator[Path]:
    """Yield an empty home. It is not below /tmp, because no command sees the /tmp of the machine."""
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
    """Return the command lines of other processes with this word in their environment."""
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
