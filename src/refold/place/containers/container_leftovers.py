"""Containers and images of refold that no session uses now: found, and removed.

They are found by the label of our data directory. What another process uses stays. `client.storage`
decides what is old enough.
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
    """A "stray" was left by a process that was killed. `used` is in seconds since 1970."""

    kind: LeftoverKind
    program: str
    name: str
    workspace: str
    bytes: int
    used: float


class ContainerLeftovers:
    """The leftovers of this data directory. `problems` says what could not be found or
    removed.
    """

    def __init__(self, data: Path, environ: Mapping[str, str]) -> None:
        self._records = ContainerRecords(data / "containers")
        self._environ = environ
        self.problems = list[str]()

    def find(self) -> Iterator[ContainerLeftover]:
        """Find the leftovers. Asks podman or docker, if a container was ever made."""
        self.problems.clear()
        if (program := self._program()) is None:
            return
        label = DATA_LABEL, self._records.identity
        try:
            containers, images = program.containers(*label), program.images(*label)
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
        """Remove a leftover, unless a process uses it by now, or a container its image."""
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
        used = max(state.changed, self._records.changed(state.workspace))
        return ContainerLeftover(
            kind, program.name, state.name, state.workspace, state.bytes, used
        )

    def _program(self) -> ContainerProgram | None:
        if not self._records.is_used:
            return None
        try:
            return find_container_program(self._environ)
        except BadInput as error:
            self.problems.append(str(error))
            return None
