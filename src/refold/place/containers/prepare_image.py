"""Makes the image of a container: pulls or builds it, and runs its setup commands once.

A project's Dockerfile and setup commands run in a container with network access, and only after
the user has approved them. The result is committed as an image, from which sessions start
without network access. The setup's container does not outlive this process, because its main
process exits when its stdin ends.
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

# This script runs its arguments and kills them when standard input ends, that is, when
# refold exits.
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
    """Make `plan.final_image`, unless it exists. Raises `BadInput` if that fails.

    If the project has commands, `ask` is called with a question that lists them, and returns
    whether the user approves. An approved plan is not asked about again. `tell` is called with
    what is done next.
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
        if plan.build:
            base = _build(plan, program, records, tell)
        else:
            base = _pull(plan, program, tell)
        if plan.setup:
            _run_setup(plan, program, records, base, tell)


def question(plan: ContainerPlan, program: str) -> str:
    """Return the question to the user, with each command of the project as it will be run.

    `program` is the name of the container program.
    """
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
    plan: ContainerPlan, program: ContainerProgram, tell: Callable[[str], None]
) -> str:
    """Pull the image if it is missing. Return its name. Raises `BadInput`."""
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
    """Build the Dockerfile. Return the name of the image. Raises `BadInput`."""
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
    """Run the setup commands on the image `base`, and commit the result as the final image."""
    name = f"{plan.name}-setup"
    program.remove_container(name)  # remove the container of a setup that was killed
    keys = dict.fromkeys(command.key for command in plan.setup)
    tell(f"running {', '.join(keys)}")
    setup_script = "\n".join(_script(plan))
    # The setup ends when the standard input of the container does.
    words = ["-c", _WITH_INPUT_SCRIPT, "sh", "/bin/sh", "-c", setup_script]
    try:
        status = program.show(
            "run", "--interactive", "--name", name, "--pull", "never", "--user", "0:0",
            *label_options(plan, records), *safety_options(), *mount_options(plan),
            "--entrypoint", "/bin/sh", base, *words,
        )  # fmt: skip
        if status:
            raise BadInput(
                f"the setup of {plan.project} failed with status {status}: see above"
            )
        program.commit(name, plan.final_image, labels(plan, records))
    finally:
        program.remove_container(name)


def _script(plan: ContainerPlan) -> Iterator[str]:
    """Yield the lines of a shell script that prints and runs each setup command.

    The script ends with the first command that fails, and with its status.
    """
    for command in plan.setup:
        yield f"echo {shlex.quote(f'+ {command}')} >&2"
        yield f"{shlex.join(command.argv)} || exit $?"
