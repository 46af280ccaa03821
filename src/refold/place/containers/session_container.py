"""The container of a session: the pipe to the place is its main process.

`open_container` turns the address of one into the command that runs it. So a container runs as long as
its pipe is open and no longer, also if refold is killed: its main process ends with its input. One
that is kept only stops, and is started again by the next session. The image was made before, by
`prepare_image`.
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
# The outer shell is process 1, and waits for what has lost its parent.
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
    """`address` has the command that runs the container. Release `lock` after its end."""

    address: PlaceAddress
    environment: Mapping[str, str]  # for commands
    notices: tuple[str, ...]
    lock: ContainerLock


def plan_of_address(address: PlaceAddress, kept_out: Mapping[str, str]) -> ContainerPlan:
    """Raises `BadInput`. `kept_out` is as in `check_project`."""
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
    """The command of a container for `address`. Raises `BadInput`, also if its image was not made."""
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
            lock.share()
            argv = (program.path, "run", "--rm", *options)
        records.touch(plan.name)
    except BaseException:
        lock.release()
        raise
    opened = replace(address, argv=argv, directory=plan.folder)
    notices = tuple(_notices(plan, network=network))
    return SessionContainer(opened, environment, notices, lock)


def reach_container(address: PlaceAddress, environ: Mapping[str, str]) -> PlaceAddress:
    """The command that reaches a container that a session runs. Raises `BadInput` if none does."""
    plan = plan_of_address(address, {})
    program = find_container_program(environ)
    container = program.running(container_name(address.text, address.directory))
    if not container:
        raise BadInput(
            f"no container of {address.text!r} runs: it does as long as its session is open"
        )
    argv = (program.path, "exec", "--interactive", container, "/bin/sh")
    return replace(address, argv=argv, directory=plan.folder)


def kept_out_of(data: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Directories that no container gets, with what they are."""
    return {str(data): "the data of refold", environ.get("HOME", ""): "your home directory"}


def _options(
    plan: ContainerPlan,
    program: ContainerProgram,
    records: ContainerRecords,
    *,
    network: bool,
) -> Sequence[str]:
    # `none` as a log driver: what goes through the pipe is on no disk.
    return (
        "--interactive", "--pull", "never", "--log-driver", "none",
        *label_options(plan, records),
        *(() if network else ("--network", "none")),
        "--cap-drop", "ALL", *safety_options(), *_user_options(program), *mount_options(plan),
        "--entrypoint", "/bin/sh", plan.final_image, *_MAIN_ARGUMENTS,
    )  # fmt: skip


def _user_options(program: ContainerProgram) -> Sequence[str]:
    """The user whose files on this machine belong to the user of refold.

    Root of podman, or of a docker that runs without root, is that user. Root of another docker is root.
    """
    mapped = program.name == "podman" or sys.platform != "linux"
    if mapped or os.getuid() == 0 or program.is_rootless:
        return "--user", "0:0"
    return "--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"


def _image_environment(plan: ContainerPlan, program: ContainerProgram) -> dict[str, str]:
    """The variables of the image. Raises `BadInput` if the image was not made."""
    variables = program.image_environment(plan.final_image)
    if variables is None:
        way = (
            "--devcontainer"
            if plan.address.startswith("devcontainer:")
            else f"--container {plan.image}"
        )
        raise BadInput(
            f"{program.name} has no image for {plan.address!r}: run `refold {way}` in "
            f"{plan.project} once, which gets it"
        )
    # The place chooses them for commands.
    return {
        name: value for name, value in variables.items() if name not in ("PATH", "HOME")
    }


def _ensure_kept(
    plan: ContainerPlan, program: ContainerProgram, options: Sequence[str]
) -> None:
    """Make the container that is kept, or check that an existing one was made from the same
    plan.
    """
    # Which files are guarded changes with the project.
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
    for state in program.containers(NAME_LABEL, plan.name):
        kept = records.keeps(state.name, plan.name)
        if state.running or not kept:
            program.end_stray(state.id, kept=kept)


def _notices(plan: ContainerPlan, *, network: bool) -> Iterator[str]:
    guarded = [os.path.relpath(path, plan.project) for path in guarded_paths(plan.project)]
    named = ", ".join(map(escape_name, guarded[:_MAX_NAMED_PATHS]))
    more = (
        f" and {len(guarded) - _MAX_NAMED_PATHS} more" if guarded[_MAX_NAMED_PATHS:] else ""
    )
    yield _BOUNDARY_NOTICE.format(
        folder=escape_name(plan.folder),
        guarded=f", but not {named}{more}" if guarded else "",
        network=_EVERY_HOST if network else _NO_NETWORK,
    )
    yield from plan.notices
