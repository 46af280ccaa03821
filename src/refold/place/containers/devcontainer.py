"""Reads a project's `devcontainer.json`: its image or Dockerfile, variables and commands.

The format is defined at containers.dev. A project may be hostile, so settings that would affect
this machine are refused: other mounts, options of the container program, commands on this
machine and its variables. Settings that serve editors, or give the container more rights or
features, are ignored; those of the second kind are named in a notice.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.place.containers.container_plan import (
    ContainerPlan,
    ImageBuild,
    SetupCommand,
    check_mountable,
)
from refold.safe_open import read_regular
from refold.values.json_with_comments import read_json_with_comments
from refold.values.path_names import below
from refold.values.printable_names import escape_name

# The first existing file counts. If the usual file has refused settings, a project can add
# the first one.
_FILE_NAMES = (
    ".devcontainer/refold/devcontainer.json",
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
)
_MAX_FILE_BYTES = 256 * 1024
# The commands run in this order.
_SETUP_KEYS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
_REFUSED_KEYS = {
    "dockerComposeFile": "refold makes one container and no others",
    "initializeCommand": "it would run on this machine",
    "runArgs": "they may undo the protection of this machine",
}
_LEFT_OUT_KEYS = {
    "features": "they are not installed",
    "privileged": "the container gets no more rights",
    "capAdd": "the container gets no more rights",
    "securityOpt": "the container gets no more rights",
    "init": "the container has its own",
    "postStartCommand": "it is not run",
    "postAttachCommand": "it is not run",
    "remoteUser": "commands run as you",
    "containerUser": "commands run as you",
    "forwardPorts": "`refold ports` opens them",
    "appPort": "`refold ports` opens them",
    "hostRequirements": "they are not checked",
    "secrets": "they are not asked for",
}
_FOR_EDITORS = frozenset(
    [
        "$schema",
        "name",
        "customizations",
        "settings",
        "extensions",
        "portsAttributes",
        "otherPortsAttributes",
        "waitFor",
        "shutdownAction",
        "overrideCommand",
        "updateRemoteUserUID",
        "userEnvProbe",
        "devPort",
        "overrideFeatureInstallOrder",
    ]
)
_VARIABLE_PATTERN = re.compile(r"\$\{(\w+)(?::[^}]*)?\}")
_LOCAL_VARIABLE_PREFIXES = frozenset(("localEnv", "env"))
_TEXT_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WAY_OUT = "leave it out, or write a copy of the file without it as .devcontainer/refold/devcontainer.json"

Command: TypeAlias = str | tuple[str, ...] | dict[str, str | tuple[str, ...]]


class _Build(Struct, frozen=True, rename="camel"):
    dockerfile: str = ""
    context: str = "."
    target: str = ""
    args: Mapping[str, str] = {}


class _File(Struct, frozen=True, rename="camel"):
    """The keys of a `devcontainer.json` that refold uses."""

    image: str = ""
    docker_file: str = ""
    context: str = ""
    build: _Build | None = None
    workspace_folder: str = ""
    workspace_mount: str = ""
    mounts: tuple[str | dict[str, Any], ...] = ()
    container_env: Mapping[str, str] = {}
    remote_env: Mapping[str, str | None] = {}
    on_create_command: Command | None = None
    update_content_command: Command | None = None
    post_create_command: Command | None = None


def plan_of_devcontainer(address: str, project: str) -> ContainerPlan:
    """Return the container plan that the project's `devcontainer.json` describes.

    Raises `BadInput`, which names the file and the wrong key.
    """
    path = _find_file(project)
    try:
        data, size = read_regular(path, _MAX_FILE_BYTES)
        if size > _MAX_FILE_BYTES:
            raise BadInput(f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
        document = read_json_with_comments(data.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise BadInput(f"{path} is not an object: write {{}} around its keys")
    return _Reader(address, project, path, cast("dict[str, Any]", document)).plan()


class _Reader:
    """Makes a container plan of the content of one `devcontainer.json`."""

    def __init__(
        self, address: str, project: str, path: Path, document: dict[str, Any]
    ) -> None:
        self._address, self._project, self._path = address, project, path
        self._document = document
        try:
            self._file = msgspec.convert(document, _File, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(f"{path}: {error}") from error
        self._folder = ""
        self._notices = list[str]()

    def plan(self) -> ContainerPlan:
        """Return the plan of the file. Raises `BadInput` for what is refused."""
        self._check_keys()
        self._check_mounts()
        self._folder = self._find_folder()
        build = self._build()
        image = self._fill("image", self._file.image)
        has_both_or_neither = bool(image) == (build is not None)
        if has_both_or_neither:
            raise BadInput(f"{self._path} must have either image or build.dockerfile")
        if image.startswith("-"):
            raise self._refusal("image", image, "it is not the name of an image")
        return ContainerPlan(
            self._address,
            self._project,
            self._folder,
            image=image,
            build=build,
            setup=tuple(self._setup()),
            environment=dict(self._environment()),
            notices=tuple(self._notices),  # after the others, which add to them
        )

    def _check_keys(self) -> None:
        """Raise `BadInput` for refused keys; add a notice for ignored ones."""
        used = {field.encode_name for field in msgspec.structs.fields(_File)}
        for key, value in self._document.items():
            is_unset = value in (None, False, [], {}, "")
            if is_unset or key in used or key in _FOR_EDITORS:
                continue
            if why_refused := _REFUSED_KEYS.get(key):
                raise BadInput(
                    f"{self._path} has {key}, which is refused: {why_refused}; {_WAY_OUT}"
                )
            reason = _LEFT_OUT_KEYS.get(key, "refold does not know it")
            names = f" ({', '.join(map(escape_name, value))})" if key == "features" else ""
            self._notices.append(
                f"{escape_name(key)}{names} of devcontainer.json is left out: {reason}"
            )

    def _check_mounts(self) -> None:
        """Raise `BadInput` for refused mounts; add a notice for ignored ones."""
        for mount in self._file.mounts:
            parts = mount if isinstance(mount, dict) else _mount_parts(mount)
            if parts.get("type") not in ("volume", "tmpfs"):
                raise self._refusal("mounts", mount, "only the project is mounted")
            self._notices.append(
                f"the mount of {escape_name(str(parts.get('target', '')))} is left out"
            )

    def _find_folder(self) -> str:
        """Return the path in the container at which the project is mounted."""
        target = ""
        if mount := self._file.workspace_mount:
            parts = _mount_parts(mount)
            source = parts.get("source", parts.get("src", ""))
            is_project = source in ("${localWorkspaceFolder}", self._project)
            if parts.get("type") != "bind" or not is_project:
                raise self._refusal("workspaceMount", mount, "only the project is mounted")
            target = parts.get("target", parts.get("dst", parts.get("destination", "")))
        usual = f"/workspaces/{os.path.basename(self._project)}"
        path = target or self._file.workspace_folder or usual
        folder = os.path.normpath(self._fill("workspaceFolder", path))
        if not os.path.isabs(folder) or folder == "/":
            raise self._refusal("workspaceFolder", folder, "it must be absolute, and not /")
        check_mountable(folder)
        return folder

    def _build(self) -> ImageBuild | None:
        """Return how to build the image; None if the file names no Dockerfile."""
        build = self._file.build
        if build is None:  # older files have these keys at the top
            build = _Build(self._file.docker_file, self._file.context or ".")
        if not build.dockerfile:
            return None
        folder = self._path.parent
        dockerfile = os.path.realpath(folder / self._fill("build", build.dockerfile))
        context = os.path.realpath(folder / self._fill("build", build.context))
        for name in (dockerfile, context):
            if not below(name, os.path.realpath(self._project)):
                raise self._refusal("build", name, "it is outside of the project")
        try:
            data, _ = read_regular(dockerfile, _MAX_FILE_BYTES)
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise self._refusal("build.dockerfile", build.dockerfile, str(error)) from error
        arguments = {
            self._variable(key): self._fill("build.args", value)
            for key, value in build.args.items()
        }
        return ImageBuild(dockerfile, context, text, build.target, arguments)

    def _setup(self) -> Iterator[SetupCommand]:
        """Yield the setup commands in order.

        A key has several commands if its value is a mapping. A command that is a text is run by
        a shell.
        """
        file = self._file
        commands = (
            file.on_create_command,
            file.update_content_command,
            file.post_create_command,
        )
        for key, command in zip(_SETUP_KEYS, commands, strict=True):
            parts = command.values() if isinstance(command, dict) else (command,)
            for part in filter(None, parts):
                words = ("/bin/sh", "-c", part) if isinstance(part, str) else part
                yield SetupCommand(key, tuple(self._fill(key, word) for word in words))

    def _environment(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values of variables.

        A variable whose value names another one is left out, with a notice.
        """
        for key, values in (
            ("containerEnv", self._file.container_env),
            ("remoteEnv", self._file.remote_env),
        ):
            for name, value in values.items():
                if value is None:
                    continue
                if "${containerEnv:" in value:
                    self._notices.append(
                        f"{key}.{escape_name(name)} of devcontainer.json is left out: "
                        "it is made of other variables"
                    )
                    continue
                yield self._variable(name), self._fill(f"{key}.{name}", value)

    def _variable(self, name: str) -> str:
        """Return `name`. Raises `BadInput` if it is unusual for a variable."""
        if not _TEXT_PATTERN.fullmatch(name):
            raise self._refusal(
                "a variable", name, "it has other characters than A-Z, 0-9 and _"
            )
        return name

    def _fill(self, key: str, text: str) -> str:
        """Return `text`, from the key `key`, with its devcontainer.json variables replaced.

        Unknown variables stay, because the shell may know them. Raises `BadInput` for a
        variable of this machine.
        """

        def value(match: re.Match[str]) -> str:
            """Return the value of a variable, or the unchanged text of an unknown one."""
            if match[1] in _LOCAL_VARIABLE_PREFIXES:
                raise self._refusal(key, match[0], "variables of this machine stay here")
            known = {
                "localWorkspaceFolder": self._project,
                "localWorkspaceFolderBasename": os.path.basename(self._project),
                "containerWorkspaceFolder": self._folder,
                "containerWorkspaceFolderBasename": os.path.basename(self._folder),
            }
            return known.get(match[1], match[0])

        return _VARIABLE_PATTERN.sub(value, text)

    def _refusal(self, key: str, value: object, reason: str) -> BadInput:
        """Return an error that says why `value` is refused, and what the user can do."""
        return BadInput(
            f"{self._path} has {value!r} for {key}, which is refused: {reason}; {_WAY_OUT}"
        )


def _find_file(project: str) -> Path:
    """Return the first `devcontainer.json` that exists. Raises `BadInput` if none does."""
    for name in _FILE_NAMES:
        if (path := Path(project, name)).is_file():
            if not below(os.path.realpath(path), os.path.realpath(project)):
                raise BadInput(f"{path} is a link to a file outside of the project")
            return path
    raise BadInput(
        f"there is no .devcontainer/devcontainer.json in {project!r}: write one, or name an "
        "image with --container IMAGE"
    )


def _mount_parts(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(","))
    return {name: value for name, _, value in parts}
