"""What a container for a session is made of. It is only a description: nothing is started here.

`devcontainer` reads one from the file of a project, `prepare_image` makes its image, and
`session_container` runs it.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.values.path_names import below

_MAX_NAME_CHARS = 40
_DIGEST_CHARS = 12
_IMAGE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*")
# They separate the parts of a mount, or would end them.
_NOT_IN_MOUNTS_PATTERN = re.compile(r'[,"\x00-\x1f\x7f]')


class ImageBuild(Struct, frozen=True):
    """A Dockerfile and the directory that its `COPY` reads, both absolute."""

    dockerfile: str
    context: str
    text: str  # of the Dockerfile
    target: str = ""
    arguments: Mapping[str, str] = {}


class SetupCommand(Struct, frozen=True):
    """A command that runs once, with network, when the image is made. `key` is its name in
    the file.
    """

    key: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        shell, *words = self.argv
        text = words[-1] if (shell, len(words)) == ("/bin/sh", 2) else " ".join(self.argv)
        return f"{self.key}: {text}"


class ContainerPlan(Struct, frozen=True):
    """`project` is mounted at `folder`. Exactly one of `image` and `build` is given."""

    address: str
    project: str
    folder: str
    image: str = ""
    build: ImageBuild | None = None
    setup: tuple[SetupCommand, ...] = ()
    environment: Mapping[str, str] = {}
    notices: tuple[str, ...] = ()  # of what the file asks for, and is not done

    @property
    def name(self) -> str:
        """The name of the container, its files and its image."""
        return container_name(self.address, self.project)

    @property
    def digest(self) -> str:
        """A hash of everything that decides how the container is made. Files that a
        Dockerfile copies do not count.
        """
        parts = (self.folder, self.image, self.build, self.setup, self.environment)
        return sha256(msgspec.json.encode(parts)).hexdigest()[:_DIGEST_CHARS]

    @property
    def runs_commands(self) -> bool:
        """Whether commands of the project run with network to make the image."""
        return self.build is not None or bool(self.setup)

    @property
    def final_image(self) -> str:
        return f"localhost/{self.name}:{self.digest}" if self.runs_commands else self.image


def container_name(address: str, project: str) -> str:
    folder = re.sub(r"[^a-z0-9]+", "-", os.path.basename(project).lower()).strip("-")
    digest = sha256(os.fsencode(address)).hexdigest()[:8]
    return f"refold-{folder[:_MAX_NAME_CHARS] or 'project'}-{digest}"


def plan_of_image(address: str, image: str, project: str) -> ContainerPlan:
    """The project at its own path, in a container of this image. Raises `BadInput`."""
    if not _IMAGE_PATTERN.fullmatch(image):
        raise BadInput(
            f"{image!r} is not the name of an image: give one like python:3.12-slim"
        )
    return ContainerPlan(address, project, project, image=image)


def check_project(project: str, kept_out: Mapping[str, str]) -> None:
    """Raise `BadInput` for a directory that no container may have.

    `kept_out` names directories that must not be in it, or be it.
    """
    if not Path(project).is_dir():
        raise BadInput(f"there is no directory {project!r} to mount in a container")
    for path, name in kept_out.items():
        if path and below(os.path.realpath(path), os.path.realpath(project)):
            raise BadInput(
                f"{project!r} has {name} in it, which no container may see: start refold in "
                "the directory of a project"
            )
    check_mountable(project)


def check_mountable(path: str) -> None:
    if _NOT_IN_MOUNTS_PATTERN.search(path):
        raise BadInput(
            f"{path!r} cannot be mounted in a container: its name has a comma, a quotation "
            "mark or a control character"
        )
