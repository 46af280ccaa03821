"""Builds options of `run` and `create` for podman and docker."""

import os
from collections.abc import Iterator

from refold.place.containers.container_plan import ContainerPlan, check_mountable
from refold.place.containers.container_program import DATA_LABEL, NAME_LABEL
from refold.place.containers.container_record import ContainerRecords
from refold.place.guarded_paths import Guards

_MAX_GUARDED_MOUNTS = 100


def safety_options() -> tuple[str, ...]:
    """Return the security options that all containers get.

    SELinux labels are switched off, because SELinux would deny access to a project whose files
    have no container label.
    """
    return "--security-opt", "no-new-privileges", "--security-opt", "label=disable"


def labels(plan: ContainerPlan, records: ContainerRecords) -> dict[str, str]:
    """Return the labels by which a workspace's containers and images are found."""
    return {DATA_LABEL: records.identity, NAME_LABEL: plan.name}


def label_options(plan: ContainerPlan, records: ContainerRecords) -> Iterator[str]:
    for key, value in labels(plan, records).items():
        yield from ("--label", f"{key}={value}")


def mount_options(plan: ContainerPlan) -> Iterator[str]:
    """Yield options for variables, the working directory, and the mounts of the project.

    The project is writable, except for its guarded files, which could make programs of this
    machine run something: these are mounted again, read-only. All of `.git` is guarded, because
    the user's git runs programs that its settings and hooks name.
    """
    for name, value in plan.environment.items():
        yield from ("--env", f"{name}={value}")
    yield from ("--workdir", plan.folder)
    yield from ("--mount", f"type=bind,source={plan.project},target={plan.folder}")
    for path in guarded_paths(plan.project):
        target = plan.folder + path.removeprefix(plan.project)
        yield from ("--mount", f"type=bind,source={path},target={target},readonly")


def guarded_paths(project: str) -> list[str]:
    """Return the existing guarded paths of a project, up to `_MAX_GUARDED_MOUNTS`.

    They are those of the local sandbox, but with all of `.git`. Raises `BadInput` if one cannot
    be mounted.
    """
    guarded = Guards((project,)).paths()
    git = os.path.join(project, ".git")
    outside_git = [
        path
        for path in guarded.oldest_first(guarded.paths)
        if path.startswith(f"{project}/")
        and not path.startswith(f"{git}/")
        and path not in guarded.links
    ]
    paths = outside_git
    if os.path.lexists(git) and not os.path.islink(git):
        paths = [git, *(path for path in outside_git if path != git)]
    mounted_paths = paths[:_MAX_GUARDED_MOUNTS]
    for path in mounted_paths:
        check_mountable(path)
    return mounted_paths
