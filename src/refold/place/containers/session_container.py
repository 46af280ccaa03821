"""Provides the command that runs a session's container and connects it by a pipe.

The main process of the container is the far end of that pipe. It exits when its stdin ends, so
the container stops with the pipe, even if refold is killed. A kept container is started again
by the next session; any other is removed. `prepare_image` makes the image before.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.place.containers.container_options import (
    guarded_paths,
    label_options,
    mount_options,
    safety_options,
)
from refold.place.containers.container_plan import (
    ContainerPlan,
    check_project,
    container_name,
    plan_of_image,
)
from refold.place.containers.container_program import (
    NAME_LABEL,
    ContainerProgram,
    find_container_program,
)
from refold.place.containers.container_record import ContainerLock, ContainerRecords
from refold.place.containers.devcontainer import plan_of_devcontainer
from refold.place.elsewhere.address import PlaceAddress
from refold.values.printable_names import escape_name

_PLAN_LABEL = "refold.plan"
# The outer shell is process 1 and reaps orphaned processes.
_MAIN_ARGUMENTS = ("-c", "/bin/sh; :")
_DIGEST_CHARS = 12
_MAX_NAMED_PATHS = 5
_BOUNDARY_NOTICE = (
    "The container is a boundary of commands: of this machine they can change {folder}{guarded}. "
    "{network}."
)
_NO_NETWORK = "It has no network; sandbox.network = true gives it every host"
_EVERY_HOST = "It reaches every host"


class SessionContainer(Struct, frozen=True):
    """A container that is ready to be run by the command in `address`.

    Release `lock` after the container has stopped.
    """

    address: PlaceAddress
    environment: Mapping[str, str]  # environment variables for commands
    notices: tuple[str, ...]
    lock: ContainerLock


def plan_of_address(address: PlaceAddress, kept_out: Mapping[str, str]) -> ContainerPlan:
    """Return the plan of the container that `address` describes. Raises `BadInput`.

    `kept_out` are directories that must not be mounted (see `check_project`).
    """
    check_project(address.directory, kept_out)
    if address.kind == "container":
        return plan_of_image(address.text, address.image, address.directory)
    return plan_of_devcontainer(address.text, address.directory)


def open_container(
    address: PlaceAddress,
    data: Path,
    environ: Mapping[str, str],
    *,
    network: bool,
) -> SessionContainer:
    """Prepare the container at `address`. Return it with the command that runs it.

    `data` is refold's data directory. Raises `BadInput` if the image does not exist, or if
    another session uses the kept container.
    """
    records = ContainerRecords(data / "containers")
    plan = plan_of_address(address, kept_out_of(data, environ))
    program = find_container_program(environ)
    kept = records.read(plan.name).kept
    lock = records.take_lock(plan.name, alone=kept)
    try:
        if lock.use == "taken":
            raise BadInput(
                f"the container {plan.name} is kept, and another session uses it: end that one first"
            )
        if lock.use == "first":
            _end_strays(plan, program, records)
        environment = {**_image_environment(plan, program), **plan.environment}
        options = _options(plan, program, records, network=network)
        if kept:
            _ensure_kept(plan, program, options)
            argv = (program.path, "start", "--attach", "--interactive", plan.name)
        else:
            lock.share()  # another session may run a container of its own
            argv = (program.path, "run", "--rm", *options)
        records.touch(plan.name)
    except BaseException:
        lock.release()
        raise
    opened = replace(address, argv=argv, directory=plan.folder)
    notices = tuple(_notices(plan, network=network))
    return SessionContainer(opened, environment, notices, lock)


def reach_container(address: PlaceAddress, environ: Mapping[str, str]) -> PlaceAddress:
    """Return `address` with a command that opens a shell in its running container.

    Raises `BadInput` if the container does not run.
    """
    plan = plan_of_address(address, kept_out={})
    program = find_container_program(environ)
    container = program.running(container_name(address.text, address.directory))
    if not container:
        raise BadInput(
            f"no container of {address.text!r} runs: it does as long as its session is open"
        )
    argv = (program.path, "exec", "--interactive", container, "/bin/sh")
    return replace(address, argv=argv, directory=plan.folder)


def kept_out_of(data: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the directories that no container may mount, each with a description."""
    return {str(data): "the data of refold", environ.get("HOME", ""): "your home directory"}


def _options(
    plan: ContainerPlan,
    program: ContainerProgram,
    records: ContainerRecords,
    *,
    network: bool,
) -> Sequence[str]:
    """Return the options and arguments with which the container is run or created."""
    # The log driver is `none`, so that data in the pipe is not written to any disk.
    return (
        "--interactive", "--pull", "never", "--log-driver", "none",
        *label_options(plan, records),
        *(() if network else ("--network", "none")),
        "--cap-drop", "ALL", *safety_options(), *_user_options(program), *mount_options(plan),
        "--entrypoint", "/bin/sh", plan.final_image, *_MAIN_ARGUMENTS,
    )  # fmt: skip


def _user_options(program: ContainerProgram) -> Sequence[str]:
    """Return options that let commands write the project's files as the user of refold.

    With podman or rootless docker, root in the container has the rights of that user. With
    other docker, root in the container has the rights of root on this machine, so the user's
    own number is used.
    """
    maps_root_to_user = program.name == "podman" or sys.platform != "linux"
    # The last test starts docker.
    if maps_root_to_user or os.getuid() == 0 or program.is_rootless:
        return "--user", "0:0"
    return "--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"


def _image_environment(plan: ContainerPlan, program: ContainerProgram) -> dict[str, str]:
    """Return the variables of the image, except for PATH and HOME.

    Raises `BadInput` if the image does not exist.
    """
    variables = program.image_environment(plan.final_image)
    if variables is None:
        option = f"--container {plan.image}"
        if plan.address.startswith("devcontainer:"):
            option = "--devcontainer"
        raise BadInput(
            f"{program.name} has no image for {plan.address!r}: run `refold {option}` in "
            f"{plan.project} once, which gets it"
        )
    # The place itself chooses these variables for commands.
    return {
        name: value for name, value in variables.items() if name not in ("PATH", "HOME")
    }


def _ensure_kept(
    plan: ContainerPlan, program: ContainerProgram, options: Sequence[str]
) -> None:
    """Create the kept container, unless it exists.

    Raises `BadInput` if it exists with other options; its mounts are not compared.
    """
    # The guarded files change with the project, so their mounts are not compared.
    fixed = (word for word in options if not word.startswith("type=bind"))
    digest = sha256("\0".join(fixed).encode()).hexdigest()[:_DIGEST_CHARS]
    states = {state.name: state for state in program.containers(NAME_LABEL, plan.name)}
    if plan.name not in states:
        program.create(
            ("--name", plan.name, "--label", f"{_PLAN_LABEL}={digest}", *options)
        )
    elif states[plan.name].labels.get(_PLAN_LABEL) != digest:
        raise BadInput(
            f"the container {plan.name} was kept, but its image, network or environment was another: "
            f"remove it with `{program.name} rm {plan.name}`"
        )


def _end_strays(
    plan: ContainerPlan, program: ContainerProgram, records: ContainerRecords
) -> None:
    """Remove the containers that a killed process left. The kept one is only stopped."""
    for state in program.containers(NAME_LABEL, plan.name):
        kept = records.keeps(state.name, plan.name)
        can_be_started_again = kept and not state.running
        if not can_be_started_again:
            program.end_stray(state.id, kept=kept)


def _notices(plan: ContainerPlan, *, network: bool) -> Iterator[str]:
    """Yield a notice about what commands can change and reach, and the plan's notices."""
    guarded = [os.path.relpath(path, plan.project) for path in guarded_paths(plan.project)]
    exception = ""
    if guarded:
        named = ", ".join(map(escape_name, guarded[:_MAX_NAMED_PATHS]))
        exception = f", but not {named}"
        if len(guarded) > _MAX_NAMED_PATHS:
            exception += f" and {len(guarded) - _MAX_NAMED_PATHS} more"
    yield _BOUNDARY_NOTICE.format(
        folder=escape_name(plan.folder),
        guarded=exception,
        network=_EVERY_HOST if network else _NO_NETWORK,
    )
    yield from plan.notices
