"""Makes the image of a container: pulls or builds it, and runs the commands of its setup once.

What a project brings, a Dockerfile or commands, runs in a container with network, and only after
the user has seen it. The result is committed as an image of its own. Sessions start from that,
without network. Nothing here outlives this process: the main process of the container for the setup
ends with its input.
"""

import shlex
from collections.abc import Callable, Iterator

from refold.errors import BadInput
from refold.place.containers.container_options import (
    label_options,
    labels,
    mount_options,
    safety_options,
)
from refold.place.containers.container_plan import ContainerPlan
from refold.place.containers.container_program import ContainerProgram
from refold.place.containers.container_record import ContainerRecords

# Runs its arguments, and ends them when standard input ends: when refold has exited.
_WITH_INPUT_SCRIPT = (
    'exec 3<&0; "$@" </dev/null 3<&- & work=$!; '
    "{ cat <&3 >/dev/null; kill -9 $work; } & wait $work"
)


def prepare_image(
    plan: ContainerPlan,
    program: ContainerProgram,
    records: ContainerRecords,
    ask: Callable[[str], bool],
    tell: Callable[[str], None],
) -> None:
    """Make `plan.final_image`, if it is not there. Raises `BadInput`.

    `ask` gets a question with the exact commands, once for each content of the file.
    """
    if program.has_image(plan.final_image):
        return
    if plan.runs_commands and plan.digest not in records.read(plan.name).approved:
        if not ask(question(plan, program.name)):
            raise BadInput(
                f"the container of {plan.project} was not made: you did not allow its commands"
            )
        records.approve(plan.name, plan.digest)
    with records.lock(plan.name) as use:
        if use != "first":
            raise BadInput(f"another refold uses or makes {plan.name}: end that one first")
        make = _build if plan.build else _pull
        base = make(plan, program, records, tell)
        if plan.setup:
            _run_setup(plan, program, records, base, tell)


def question(plan: ContainerPlan, program: str) -> str:
    """What is done with the project's own commands, each exactly as it would be run."""
    lines = [
        f"{plan.project} asks for a container with commands of its own. {program} would:"
    ]
    if plan.build:
        lines += [f"  build {plan.build.dockerfile}, whose RUN lines have network:"]
        lines += (f"    {line}" for line in plan.build.text.rstrip().splitlines())
    else:
        lines += [f"  use the image {plan.image}"]
    if plan.setup:
        lines += [f"  run, with network, as root of the container and with {plan.project}:"]
        lines += (
            f"    {line}" for command in plan.setup for line in str(command).splitlines()
        )
    return "\n".join(lines)


def _pull(
    plan: ContainerPlan,
    program: ContainerProgram,
    _records: ContainerRecords,
    tell: Callable[[str], None],
) -> str:
    if not program.has_image(plan.image):
        tell(f"pulling {plan.image} with {program.name}")
        if status := program.show("pull", plan.image):
            raise BadInput(
                f"{program.name} pull {plan.image} failed with status {status}: see above"
            )
    return plan.image


def _build(
    plan: ContainerPlan,
    program: ContainerProgram,
    records: ContainerRecords,
    tell: Callable[[str], None],
) -> str:
    assert plan.build is not None
    build = plan.build
    image = f"{plan.final_image}-base" if plan.setup else plan.final_image
    options = ["--file", build.dockerfile, "--tag", image]
    options += ["--target", build.target] if build.target else []
    for key, value in build.arguments.items():
        options += ["--build-arg", f"{key}={value}"]
    tell(f"building {build.dockerfile} with {program.name}")
    options += label_options(plan, records)
    if status := program.show("build", *options, build.context):
        raise BadInput(f"{program.name} build failed with status {status}: see above")
    return image


def _run_setup(
    plan: ContainerPlan,
    program: ContainerProgram,
    records: ContainerRecords,
    base: str,
    tell: Callable[[str], None],
) -> None:
    name = f"{plan.name}-setup"
    program.remove_container(name)  # of a setup that was killed
    tell(f"running {', '.join(dict.fromkeys(command.key for command in plan.setup))}")
    try:
        status = program.show(
            "run", "--interactive", "--name", name, "--pull", "never", "--user", "0:0",
            *label_options(plan, records), *safety_options(), *mount_options(plan),
            "--entrypoint", "/bin/sh", base,
            "-c", _WITH_INPUT_SCRIPT, "sh", "/bin/sh", "-c", "\n".join(_script(plan)),
        )  # fmt: skip
        if status:
            raise BadInput(
                f"the setup of {plan.project} failed with status {status}: see above"
            )
        program.commit(name, plan.final_image, labels(plan, records))
    finally:
        program.remove_container(name)


def _script(plan: ContainerPlan) -> Iterator[str]:
    for command in plan.setup:
        yield f"echo {shlex.quote(f'+ {command}')} >&2"
        yield f"{shlex.join(command.argv)} || exit $?"
