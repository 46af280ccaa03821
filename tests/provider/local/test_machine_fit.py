"""What this machine has for models, and the finding on a model that needs more."""

import pytest

from refold.provider.local.machine import (
    Gpu,
    Machine,
    parse_nvidia,
    parse_vulkan,
    this_machine,
)

GB = 1_000_000_000
VULKAN = """
Devices:
========
GPU0:
\tapiVersion         = 1.3.255
\tdeviceType         = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU
\tdeviceName         = Intel(R) Arc(tm) Graphics (MTL)
GPU1:
\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU
\tdeviceName         = llvmpipe (LLVM 15.0.7, 256 bits)
"""


def test_gpus_are_read_from_nvidia_smi() -> None:
    nvidia = parse_nvidia("NVIDIA GeForce RTX 4090, 24564\nNVIDIA A2, [N/A]\nfailed\n")

    assert nvidia == (Gpu("NVIDIA GeForce RTX 4090", 24564 << 20),)


def test_gpus_are_read_from_vulkaninfo_without_software_renderers() -> None:
    assert parse_vulkan(VULKAN) == (Gpu("Intel(R) Arc(tm) Graphics (MTL)"),)
    assert parse_vulkan("Cannot create Vulkan instance.") == ()


@pytest.mark.parametrize(
    ("machine", "need", "fit"),
    [
        (Machine(16 * GB, 12 * GB), 6 * GB, "fits"),
        (Machine(16 * GB, 4 * GB), 6 * GB, "fits, if other programs leave it the memory"),
        (Machine(16 * GB, 12 * GB), 20 * GB, "too large for this machine"),
        (Machine(0, 0), 20 * GB, "memory unknown"),
        (Machine(0, 0), 0, "memory unknown"),
        (Machine(16 * GB, 12 * GB, (Gpu("A", 24 * GB),), True), 20 * GB, "fits on the GPU"),
        (
            Machine(16 * GB, 12 * GB, (Gpu("A", 24 * GB),), False),
            20 * GB,
            "too large for this machine",
        ),
    ],
)
def test_the_fit_of_a_model_depends_on_memory_and_on_the_gpu_in_use(
    machine: Machine, need: int, fit: str
) -> None:
    assert machine.describe_fit(need) == fit


def test_machine_names_a_gpu_that_llama_cpp_does_not_use() -> None:
    machine = Machine(16 * GB, 12 * GB, (Gpu("A", 24 * GB),))

    assert machine.text == (
        "this machine: 16.0 GB of memory, 12.0 GB of it available, A with 24.0 GB "
        "(not used: llama.cpp is built without it)"
    )


def test_machine_without_nvidia_smi_and_vulkaninfo_reports_no_gpu() -> None:
    machine = this_machine({}, lambda name: "")

    assert (machine.gpus, machine.uses_gpu) == ((), False)
    assert machine.memory >= machine.available > 0
