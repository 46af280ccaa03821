"""Describes the container of a session. It starts nothing.

`devcontainer` reads the description from a file of the project, `prepare_image` makes the
image, and `session_container` runs the container.
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

_NAME_DIGEST_CHARS = 8  # enough to tell the workspaces of one user apart
_MAX_NAME_CHARS = 40
_DIGEST_CHARS = 12
_IMAGE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*")
# A mount option cannot contain these: they separate its parts, or would end it.
_NOT_IN_MOUNTS_PATTERN = re.compile(r'[,"\x00-\x1f\x7f]')


class ImageBuild(Struct, frozen=True):
    """A Dockerfile from which an image is built.

    `context` is the directory that `COPY` in the Dockerfile reads. Both paths are absolute.
    """

    dockerfile: str
    context: str
    text: str  # the text of the Dockerfile
    target: str = ""
    arguments: Mapping[str, str] = {}


class SetupCommand(Struct, frozen=True):
    """A command that runs once, with network access, when the image is made.

    `key` is the key of `devcontainer.json` that names the command.
    """

    key: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        is_shell_script = self.argv[0] == "/bin/sh" and len(self.argv) == 3  # sh -c SCRIPT
        text = self.argv[-1] if is_shell_script else " ".join(self.argv)
        return f"{self.key}: {text}"


class ContainerPlan(Struct, frozen=True):
    """A container's image, mounts and setup. `project` is mounted in it at `folder`.

    Exactly one of `image` and `build` is given. `setup` runs when the image is made.
    """

    address: str
    project: str
    folder: str
    image: str = ""
    build: ImageBuild | None = None
    setup: tuple[SetupCommand, ...] = ()
    environment: Mapping[str, str] = {}
    notices: tuple[str, ...] = ()  # names settings of the file that are ignored

    @property
    def name(self) -> str:
        """The name of the container, which its image and its record have, too."""
        return container_name(self.address, self.project)

    @property
    def digest(self) -> str:
        """A hash of what decides how the image and the container are made.

        It does not cover the files that a Dockerfile copies.
        """
        parts = (self.folder, self.image, self.build, self.setup, self.environment)
        return sha256(msgspec.json.encode(parts)).hexdigest()[:_DIGEST_CHARS]

    @property
    def runs_commands(self) -> bool:
        """Whether making the image runs commands of the project, with network access."""
        return self.build is not None or bool(self.setup)

    @property
    def final_image(self) -> str:
        return f"localhost/{self.name}:{self.digest}" if self.runs_commands else self.image


def container_name(address: str, project: str) -> str:
    """Return the name of a project's container, for example "refold-shop-1a2b3c4d".

    It contains the name of the directory, and a hash of the address.
    """
    folder = re.sub(r"[^a-z0-9]+", "-", os.path.basename(project).lower()).strip("-")
    digest = sha256(os.fsencode(address)).hexdigest()[:_NAME_DIGEST_CHARS]
    return f"refold-{folder[:_MAX_NAME_CHARS] or 'project'}-{digest}"


def plan_of_image(address: str, image: str, project: str) -> ContainerPlan:
    """Return the plan of a container with this image. Raises `BadInput` for an invalid name.

    The project is mounted at the path that it has on this machine.
    """
    if not _IMAGE_PATTERN.fullmatch(image):
        raise BadInput(
            f"{image!r} is not the name of an image: give one like python:3.12-slim"
        )
    return ContainerPlan(address, project, project, image=image)


def check_project(project: str, kept_out: Mapping[str, str]) -> None:
    """Raise `BadInput` if a directory must not be mounted in a container.

    `project` must exist, and must neither be nor contain a directory in `kept_out`, which maps
    paths to descriptions for the message.
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
    """Raise `BadInput` if `path` has characters that the option for a mount cannot contain."""
    if _NOT_IN_MOUNTS_PATTERN.search(path):
        raise BadInput(
            f"{path!r} cannot be mounted in a container: its name has a comma, a quotation "
            "mark or a control character"
        )
