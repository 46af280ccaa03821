"""Parses the address of a workspace elsewhere, such as `ssh://host/dir`.

The result has a command that gives a pipe to a shell in the place (the machine or container
with the workspace). All access to the place goes through this pipe (`pipe`).
"""

import os
import re
import shlex
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from refold.errors import BadInput

_ADDRESS_FORMS = (
    "ssh://host/dir, docker://container/dir, podman://container/dir, k8s://namespace/pod/dir, "
    'cmd:"command" or container:image (a directory follows after " # "), or devcontainer:dir'
)
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%@-]*")
_PLACE_SHELL = "/bin/sh"
_HOME_DIRECTORY = "~"


class PlaceAddress(Struct, frozen=True):
    """The parsed address of a workspace elsewhere. `text` is what the user wrote.

    `argv` is a command that gives a pipe to a shell in the place. The workspace is in
    `directory` there: an absolute path, or one that begins with `~`.

    For a container that refold makes for a session, `argv` is empty until
    `containers.session_container` sets it, and until then `directory` is one of this machine.
    If its `image` is "", the project's `devcontainer.json` names the image.
    """

    text: str
    kind: str
    argv: tuple[str, ...]
    directory: str
    image: str = ""

    @property
    def is_made(self) -> bool:
        """Whether the place is a container that refold makes for the session."""
        return self.kind in CONTAINER_KINDS


_Make: TypeAlias = Callable[[str, str, str], PlaceAddress]


def parse_address(text: str) -> PlaceAddress:
    """Parse an address. Raises `BadInput`, which quotes the text and says what is wrong."""
    kind, colon, rest = text.partition(":")
    if colon and (make_from_rest := _PLAIN_KINDS.get(kind)):
        return make_from_rest(text, rest)
    parts = urlsplit(text)
    make = _ADDRESS_KINDS.get(parts.scheme)
    if make is None or not parts.netloc:
        raise BadInput(f"{text!r} is not an address of a workspace: give {_ADDRESS_FORMS}")
    if parts.query or parts.fragment:
        raise BadInput(f"{text!r} has a ? or #: write them as %3F and %23")
    name, path = unquote(parts.netloc), unquote(parts.path)
    if not _NAME_PATTERN.fullmatch(name):
        raise BadInput(
            f"{text!r} names {name!r}, which is not the name of a host or container"
        )
    return make(text, name, path)


def is_address(text: str) -> bool:
    """Whether `text` begins like an address. Otherwise it is a path."""
    plain_beginnings = (f"{kind}:" for kind in _PLAIN_KINDS)
    url_beginnings = (f"{kind}://" for kind in _ADDRESS_KINDS)
    return text.startswith((*plain_beginnings, *url_beginnings))


def address_below(text: str, name: str) -> str:
    """Return the address of the directory `name` in the workspace at the address `text`."""
    address = parse_address(text)
    if address.kind == "cmd":
        _, _, after_scheme = text.partition(":")
        unquoted = after_scheme.strip().strip('"')
        command, mark, _ = unquoted.rpartition(" # ")
        if not mark:  # without a directory, all of it is the command
            command = unquoted
        return f'cmd:"{command} # {address.directory}/{name}"'
    start = text.rstrip("/")
    # `ssh://host` means the home there, but a directory in the home is `ssh://host/~/name`.
    if address.directory == _HOME_DIRECTORY and not start.endswith("/~"):
        return f"{start}/~/{name}"
    return f"{start}/{name}"


def _parse_ssh(text: str, name: str, path: str) -> PlaceAddress:
    """Return the address for `name`, a host with an optional port, and the directory `path`."""
    host, colon, port = name.rpartition(":")
    if not colon:
        host, port = name, ""
    if port and not port.isdecimal():
        raise BadInput(f"{text!r} has the port {port!r}, which is not a number")
    # There is no terminal, so ssh must not ask: no user could answer.
    options = ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"]
    options += ["-p", port] if port else []
    return PlaceAddress(
        text, "ssh", ("ssh", *options, "--", host, _PLACE_SHELL), _directory(text, path)
    )


def _container_parser(program: str) -> _Make:
    """Return a function that makes the address of a running container of `program`."""

    def make(text: str, name: str, path: str) -> PlaceAddress:
        argv = (program, "exec", "-i", name, _PLACE_SHELL)
        return PlaceAddress(text, program, argv, _directory(text, path))

    return make


def _parse_pod(text: str, name: str, path: str) -> PlaceAddress:
    """Return the address of a pod. `name` is its namespace; `path` begins with the pod."""
    pod, _, directory = path.lstrip("/").partition("/")
    if not _NAME_PATTERN.fullmatch(pod):
        raise BadInput(f"{text!r} names no pod: give k8s://namespace/pod/dir")
    argv = ("kubectl", "exec", "-i", "-n", name, pod, "--", _PLACE_SHELL)
    return PlaceAddress(text, "k8s", argv, _directory(text, f"/{directory}"))


def _parse_command(text: str, after_scheme: str) -> PlaceAddress:
    """Return the address for `command # directory`. The directory may be missing."""
    unquoted = after_scheme.strip().strip('"')
    command, mark, directory = unquoted.rpartition(" # ")
    if not mark:
        command, directory = unquoted, _HOME_DIRECTORY
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise BadInput(f"the command in {text!r} cannot be read: {error}") from error
    if not argv:
        raise BadInput(f'{text!r} has no command: give one as in cmd:"ssh host sh"')
    return PlaceAddress(text, "cmd", argv, _directory(text, directory.strip()))


def _parse_image(text: str, after_scheme: str) -> PlaceAddress:
    """Return the address for `image # directory`. Both are needed."""
    image, mark, directory = after_scheme.rpartition(" # ")
    if not mark or not image.strip():
        raise BadInput(
            f"{text!r} must name an image and a directory of this machine: give "
            '"container:python:3.12-slim # /home/you/project"'
        )
    return _container_address(text, "container", directory.strip(), image.strip())


def _parse_devcontainer(text: str, after_scheme: str) -> PlaceAddress:
    return _container_address(text, "devcontainer", after_scheme.strip(), image="")


def _container_address(text: str, kind: str, directory: str, image: str) -> PlaceAddress:
    directory = os.path.realpath(os.path.expanduser(_directory(text, directory)))
    return PlaceAddress(text, kind, (), directory, image)


def _directory(text: str, path: str) -> str:
    """Return the directory that `path` means. Raises `BadInput`.

    "" and /~ mean the home directory, and /~/x means ~/x. `text` is the whole address.
    """
    if path in ("", "/~"):
        return _HOME_DIRECTORY
    if path.startswith("/~/"):
        path = path.removeprefix("/")
    if not path.startswith(("/", "~/")) and path != _HOME_DIRECTORY:
        raise BadInput(f"the directory {path!r} in {text!r} is not absolute")
    if any(ord(char) < 32 for char in path):
        raise BadInput(f"the directory in {text!r} has control characters")
    return path


CONTAINER_KINDS = frozenset(("container", "devcontainer"))
_PLAIN_KINDS: dict[str, Callable[[str, str], PlaceAddress]] = {
    "cmd": _parse_command,
    "container": _parse_image,
    "devcontainer": _parse_devcontainer,
}
_ADDRESS_KINDS: dict[str, _Make] = {
    "ssh": _parse_ssh,
    "docker": _container_parser("docker"),
    "podman": _container_parser("podman"),
    "k8s": _parse_pod,
}
