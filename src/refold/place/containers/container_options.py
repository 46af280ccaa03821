"""Options of `run` and `create` that docker and podman have in common."""

import os
from collections.abc import Iterator

from refold.place.containers.container_plan import ContainerPlan, check_mountable
from refold.place.containers.container_program import DATA_LABEL, NAME_LABEL
from refold.place.containers.container_record import ContainerRecords
from refold.place.guarded_paths import Guards

_MAX_GUARDED_MOUNTS = 100


def safety_options() -> tuple[str, ...]:
    """Options for all containers. SELinux would otherwise deny the project, unless its
    files get new labels.
    """
    return "--security-opt", "no-new-privileges", "--security-opt", "label=disable"


def labels(plan: ContainerPlan, records: ContainerRecords) -> dict[str, str]:
    """The labels by which the containers and images of a workspace are found."""
    return {DATA_LABEL: records.identity, NAME_LABEL: plan.name}


def label_options(plan: ContainerPlan, records: ContainerRecords) -> Iterator[str]:
    for key, value in labels(plan, records).items():
        yield from ("--label", f"{key}={value}")


def mount_options(plan: ContainerPlan) -> Iterator[str]:
    """Mount the project, and read-only in it the files that make programs of this machine
    run something.

    All of `.git` is read-only: its settings and hooks run where the user calls git.
    """
    for name, value in plan.environment.items():
        yield from ("--env", f"{name}={value}")
    yield from ("--workdir", plan.folder)
    yield from ("--mount", f"type=bind,source={plan.project},target={plan.folder}")
    for path in guarded_paths(plan.project):
        target = plan.folder + path.removeprefix(plan.project)
        yield from ("--mount", f"type=bind,source={path},target={target},readonly")


def guarded_paths(project: str) -> list[str]:
    """The guarded paths that exist in a project, as the local sandbox has them. Raises `BadInput`."""
    guarded = Guards((project,)).paths()
    git = os.path.join(project, ".git")
    paths = [
        path
        for path in guarded.oldest_first(guarded.paths)
        if path.startswith(f"{project}/")
        and not path.startswith(f"{git}/")
        and path not in guarded.links
    ]
    if os.path.lexists(git) and not os.path.islink(git):
        paths = [git, *(path for path in paths if path != git)]
    for path in paths[:_MAX_GUARDED_MOUNTS]:
        check_mountable(path)
    return paths[:_MAX_GUARDED_MOUNTS]
