"""Finds out how much memory and which GPUs this machine has, and whether a model fits.

It runs `nvidia-smi` and `vulkaninfo` if they are installed. It also checks whether the
installed llama.cpp was built to use GPUs.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold import programs
from refold.programs import Programs
from refold.provider.local.server import machine_memory

_PROGRAM_TIMEOUT_SECONDS = 5.0
_RESERVED_BYTES = 1_000_000_000  # left for other programs
_CGROUP_LIMIT_PATH = Path("/sys/fs/cgroup/memory.max")
_MEMINFO_PATH = Path("/proc/meminfo")


class Gpu(Struct, frozen=True):
    """A GPU. `memory` is in bytes; 0 if unknown."""

    name: str
    memory: int = 0


class Machine(Struct, frozen=True):
    """The memory and GPUs of a machine. `uses_gpu` says whether llama.cpp uses GPUs.

    `memory` (in all) and `available` are in bytes; 0 if unknown.
    """

    memory: int
    available: int
    gpus: tuple[Gpu, ...] = ()
    uses_gpu: bool = False

    @property
    def text(self) -> str:
        """The memory and the GPUs of the machine, in words for the user."""
        text = f"this machine: {_gigabytes(self.memory)} of memory"
        if self.available:
            text += f", {_gigabytes(self.available)} of it available"
        for gpu in self.gpus:
            memory = f" with {_gigabytes(gpu.memory)}" if gpu.memory else ""
            text += f", {gpu.name}{memory}"
        if not self.gpus:
            return f"{text}, no GPU"
        return (
            text if self.uses_gpu else f"{text} (not used: llama.cpp is built without it)"
        )

    def describe_fit(self, need: int) -> str:
        """Say in a few words whether a model that needs this many bytes of memory fits."""
        largest_gpu = (
            max((gpu.memory for gpu in self.gpus), default=0) if self.uses_gpu else 0
        )
        if largest_gpu and largest_gpu >= need:
            return "fits on the GPU"
        if not self.memory:
            return "memory unknown"
        if need > self.memory - _RESERVED_BYTES:
            return "too large for this machine"
        if self.available and need > self.available:
            return "fits, if other programs leave it the memory"
        return "fits"


def this_machine(
    environ: Mapping[str, str], find: Callable[[str], str] | None = None
) -> Machine:
    """Examine this machine. Nothing is raised: a value that cannot be found is unknown."""
    memory, available = _memory()
    gpus = _gpus(find or Programs(environ).find)
    uses_gpu = bool(gpus) and _llama_uses_gpu()
    return Machine(memory, available, gpus, uses_gpu=uses_gpu)


def parse_nvidia(text: str) -> tuple[Gpu, ...]:
    """Parse the output of `nvidia-smi`: on each line the name and the memory (MiB) of a GPU."""
    rows = [line.rpartition(",") for line in text.splitlines()]
    return tuple(
        Gpu(name.strip(), int(memory) << 20)
        for name, _, memory in rows
        if name and memory.strip().isdecimal()
    )


def parse_vulkan(text: str) -> tuple[Gpu, ...]:
    """Parse the output of `vulkaninfo --summary`. Software renderers are left out."""
    rows = [[part.strip() for part in line.split("=", 1)] for line in text.splitlines()]
    kinds = [row[1] for row in rows if len(row) == 2 and row[0] == "deviceType"]
    names = [row[1] for row in rows if len(row) == 2 and row[0] == "deviceName"]
    devices = zip(kinds, names, strict=False)
    return tuple(Gpu(name) for kind, name in devices if kind.endswith("_GPU"))


def _gpus(find: Callable[[str], str]) -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists or, if there are none, those of vulkaninfo."""
    query = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    nvidia_gpus = parse_nvidia(_output(find("nvidia-smi"), query))
    if nvidia_gpus:
        return nvidia_gpus
    return parse_vulkan(_output(find("vulkaninfo"), ("--summary",)))


def _output(program: str, arguments: Sequence[str]) -> str:
    """Run a program and return its output, or "" if it is not installed or fails."""
    if not program:
        return ""
    try:
        result = programs.run([program, *arguments], _PROGRAM_TIMEOUT_SECONDS)
    except (OSError, programs.TimedOut):
        return ""
    return "" if result.returncode else result.stdout.decode(errors="replace")


def _llama_uses_gpu() -> bool:
    """Whether llama.cpp finds a device besides the CPU. False if it is not installed."""
    try:
        # the package has no type annotations
        llama: Any = importlib.import_module("xllamacpp")
        return any(device["name"] != "CPU" for device in llama.get_device_info())
    except (ImportError, AttributeError, KeyError, RuntimeError):
        return False


def _memory() -> tuple[int, int]:
    """Return the machine's total and available memory in bytes, limited by a container."""
    memory = machine_memory()
    available = 0
    with suppress(OSError, ValueError):  # only Linux has this file
        for line in _MEMINFO_PATH.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                kilobytes = int(line.split()[1])
                available = kilobytes << 10
    with suppress(OSError, ValueError):  # the container has no such limit
        memory = min(memory, int(_CGROUP_LIMIT_PATH.read_text(encoding="ascii")))
    return memory, min(available, memory)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
