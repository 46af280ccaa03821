"""Calls docker or podman, using only commands and options that both have.

Containers and images are listed by id and then inspected, because only the JSON of `inspect` is
the same for both programs. `prepare_image` and `session_container` decide what containers are
used for.
"""

import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec
from msgspec import Struct

from refold import programs
from refold.errors import BadInput
from refold.place.environment import environment
from refold.programs import Programs, TimedOut

# podman is preferred: its containers do not have the rights of root
PROGRAM_NAMES = ("podman", "docker")
DATA_LABEL = "refold.data"  # names the data directory of refold that a container belongs to
NAME_LABEL = "refold.workspace"
_QUERY_SECONDS = 60.0
_COMMIT_SECONDS = 3600.0
_MAX_COMPLAINT_CHARS = 500
_FOR_PROGRAM = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERS_CONF",
    "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",
)  # fmt: skip


class ContainerState(Struct, frozen=True):
    """A container or an image as `inspect` describes it.

    `changed` is the time of its creation, in seconds since 1970; 0 if unknown.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    running: bool
    bytes: int
    changed: float

    @property
    def workspace(self) -> str:
        return self.labels.get(NAME_LABEL, "")


class ContainerProgram:
    """Runs docker or podman, the program at `path`. Failures are raised as `BadInput`."""

    def __init__(self, name: str, path: str, environ: Mapping[str, str]) -> None:
        self.name, self.path = name, path
        named = {key: environ[key] for key in _FOR_PROGRAM if key in environ}
        self._environ = {**environment(environ), **named}

    @cached_property
    def is_rootless(self) -> bool:
        """Whether docker runs without the rights of root."""
        return "rootless" in self._check("info", "--format", "{{.SecurityOptions}}")

    def has_image(self, image: str) -> bool:
        return self.image_environment(image) is not None

    def image_environment(self, image: str) -> dict[str, str] | None:
        """Return the environment variables of an image; None if the image does not exist."""
        status, out, _ = self._ask(
            "image", "inspect", "--format", "{{json .Config.Env}}", image
        )
        if status:
            return None
        # null: the image has no variables
        rows = msgspec.json.decode(out, type=list[str] | None) or ()
        pairs = (row.partition("=") for row in rows)
        return {name: value for name, _, value in pairs}

    def has_container(self, name: str) -> bool:
        status, _, _ = self._ask("container", "inspect", "--format", "{{.Id}}", name)
        return status == 0

    def running(self, workspace: str) -> str:
        """Return the id of a running container of the workspace; "" if none runs."""
        label = f"label={NAME_LABEL}={workspace}"
        ids = self._check("ps", "--quiet", "--no-trunc", "--filter", label).split()
        return ids[0] if ids else ""

    def containers(self, label: str, value: str) -> Sequence[ContainerState]:
        """Return all containers with this label and value, including stopped ones."""
        ids = self._check(
            "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}={value}"
        )
        return self._inspect("container", ids.split())

    def images(self, label: str, value: str) -> Sequence[ContainerState]:
        """Return all images with this label and value, each once."""
        ids = self._check(
            "images", "--quiet", "--no-trunc", "--filter", f"label={label}={value}"
        )
        return self._inspect("image", list(dict.fromkeys(ids.split())))

    def remove_container(self, name: str) -> None:
        """Stop and remove a container. Do nothing if it does not exist."""
        status, _, complaint = self._ask("rm", "--force", "--volumes", name)
        if status and self.has_container(name):
            raise BadInput(f"{self.name} does not remove the container {name}: {complaint}")

    def end_stray(self, name: str, *, kept: bool) -> None:
        """Remove a container that a killed process left; if it is `kept`, only kill it."""
        if kept:
            self._check("kill", name)
        else:
            self.remove_container(name)

    def remove_image(self, name: str) -> None:
        self._check("rmi", name)

    def create(self, arguments: Sequence[str]) -> None:
        self._check("create", *arguments)

    def commit(self, container: str, image: str, labels: Mapping[str, str]) -> None:
        """Store a container as `image`, with `labels`. Raises `BadInput` if that fails."""
        changes = (f"LABEL {key}={value}" for key, value in labels.items())
        options = [word for change in changes for word in ("--change", change)]
        self._check("commit", *options, container, image, seconds=_COMMIT_SECONDS)

    def show(self, *arguments: str) -> int:
        """Run a command and show its output to the user on stderr. Return its exit status.

        Its stdin is a pipe to which nothing is written, and which closes when this process
        exits.
        """
        with programs.start(
            (self.path, *arguments), stdin=subprocess.PIPE, stdout=2, env=self._environ
        ) as process:
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                raise

    def _inspect(self, kind: str, ids: Sequence[str]) -> Sequence[ContainerState]:
        """Return the state of each container or image; none at all if one was just removed."""
        if not ids:
            return ()
        status, out, _ = self._ask(kind, "inspect", *ids)
        try:
            rows = msgspec.json.decode(out, type=list[_Inspected])
        except msgspec.DecodeError as error:
            if status:
                return ()  # one was removed in the meantime: the next call lists the others
            raise BadInput(f"{self.name} {kind} inspect prints no JSON: {error}") from error
        return tuple(row.state() for row in rows)

    def _check(self, *arguments: str, seconds: float = _QUERY_SECONDS) -> str:
        """Run the program and return its output. Raises `BadInput` if it fails."""
        status, out, complaint = self._ask(*arguments, seconds=seconds)
        if status:
            raise BadInput(
                f"{self.name} {arguments[0]} failed with status {status}: {complaint}"
            )
        return out

    def _ask(
        self, *arguments: str, seconds: float = _QUERY_SECONDS
    ) -> tuple[int, str, str]:
        """Run a command. Return its exit status, its stdout and the last line of its stderr.

        Raises `BadInput` only if it cannot be started or takes longer than `seconds`.
        """
        try:
            done = programs.run((self.path, *arguments), seconds, env=self._environ)
        except (OSError, TimedOut) as error:
            raise BadInput(f"{self.name} {arguments[0]} cannot be run: {error}") from error
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        complaint = lines[-1][-_MAX_COMPLAINT_CHARS:] if lines else "it says nothing"
        return done.returncode, done.stdout.decode(errors="replace"), complaint


class _State(Struct):
    status: str = msgspec.field(default="", name="Status")


class _Config(Struct):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Inspected(Struct):
    id: str = msgspec.field(name="Id")
    name: str = msgspec.field(default="", name="Name")
    tags: list[str] | None = msgspec.field(default=None, name="RepoTags")
    created: str = msgspec.field(default="", name="Created")
    size: int = msgspec.field(default=0, name="Size")
    status: _State | None = msgspec.field(default=None, name="State")
    config: _Config | None = msgspec.field(default=None, name="Config")

    def state(self) -> ContainerState:
        """Return the state. An image has no name, so its first tag is the name, or else its id."""
        labels = (self.config.labels if self.config else None) or {}
        first_tag = self.tags[0] if self.tags else ""
        name = self.name.removeprefix("/") or first_tag or self.id
        running = self.status is not None and self.status.status in ("running", "paused")
        return ContainerState(
            id=self.id,
            name=name,
            labels=labels,
            running=running,
            bytes=self.size,
            changed=_seconds(self.created),
        )


def find_container_program(environ: Mapping[str, str]) -> ContainerProgram:
    """Return podman, or else docker. Raises `BadInput` if neither is installed."""
    known = Programs(environ)
    for name in PROGRAM_NAMES:
        if path := known.find(name):
            return ContainerProgram(name, path, environ)
    raise BadInput("there is neither podman nor docker: install one (apt install podman)")


def _seconds(text: str) -> float:
    """Return a printed time, read as UTC, in seconds since 1970; 0 if it cannot be read."""
    try:
        return datetime.fromisoformat(text[:19] + "+00:00").timestamp()
    except ValueError:
        return 0.0
