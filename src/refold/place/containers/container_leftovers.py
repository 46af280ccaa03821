"""Finds and removes containers and images of refold that no session uses.

They are recognized by a label that names our data directory. Containers and images that another
process uses are left alone. `client.storage` decides which of the others are old enough to be
removed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import BadInput
from refold.place.containers.container_program import (
    DATA_LABEL,
    ContainerProgram,
    ContainerState,
    find_container_program,
)
from refold.place.containers.container_record import ContainerRecords

LeftoverKind: TypeAlias = Literal["stray", "kept", "image"]


class ContainerLeftover(Struct, frozen=True):
    """A container or image that no session uses. `used` is in seconds since 1970.

    A killed process has left a "stray" container. A "kept" one waits for the next session.
    """

    kind: LeftoverKind
    program: str
    name: str
    workspace: str
    bytes: int
    used: float


class ContainerLeftovers:
    """The unused containers and images that belong to the data directory `data`.

    `problems` are sentences about errors of podman or docker.
    """

    def __init__(self, data: Path, environ: Mapping[str, str]) -> None:
        self._records = ContainerRecords(data / "containers")
        self._environ = environ
        self.problems = list[str]()

    def find(self) -> Iterator[ContainerLeftover]:
        """Yield the unused containers and images.

        podman or docker is only called if refold has made a container for this data directory.
        """
        self.problems.clear()
        if (program := self._program()) is None:
            return
        identity = self._records.identity
        try:
            containers = program.containers(DATA_LABEL, identity)
            images = program.images(DATA_LABEL, identity)
        except BadInput as error:
            self.problems.append(str(error))
            return
        for state in containers:
            if not self._records.is_in_use(state.workspace):
                yield self._leftover(program, state, self._kind(state))
        for state in images:
            if not self._records.is_in_use(state.workspace):
                yield self._leftover(program, state, "image")

    def remove(self, leftover: ContainerLeftover) -> bool:
        """Remove a container or image.

        A stray container that is kept is only stopped; `find` then yields it as a "kept" one.
        Return False if a process uses the container or image, or if it could not be removed
        (`problems` then has the reason).
        """
        program = self._program()
        with self._records.lock(leftover.workspace) as use:
            if program is None or use != "first":
                return False
            try:
                name, workspace = leftover.name, leftover.workspace
                if leftover.kind == "image":
                    program.remove_image(name)
                elif leftover.kind == "stray":
                    kept = self._records.keeps(name, workspace)
                    program.end_stray(name, kept=kept)
                else:
                    program.remove_container(name)
            except BadInput as error:
                self.problems.append(str(error))
                return False
            if leftover.kind == "kept":
                self._records.keep(leftover.workspace, kept=False)
            return True

    def _kind(self, state: ContainerState) -> LeftoverKind:
        kept = self._records.keeps(state.name, state.workspace)
        return "kept" if kept and not state.running else "stray"

    def _leftover(
        self, program: ContainerProgram, state: ContainerState, kind: LeftoverKind
    ) -> ContainerLeftover:
        """Return the entry for a container or an image, with the time of its last use."""
        used = max(state.changed, self._records.changed(state.workspace))
        return ContainerLeftover(
            kind, program.name, state.name, state.workspace, state.bytes, used
        )

    def _program(self) -> ContainerProgram | None:
        """Return podman or docker; None if neither is installed, or no container was made."""
        if not self._records.is_used:
            return None
        try:
            return find_container_program(self._environ)
        except BadInput as error:
            self.problems.append(str(error))
            return None
