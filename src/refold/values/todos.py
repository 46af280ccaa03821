"""The checklist of a session: what is to be done, and how far it is."""

from typing import Literal, TypeAlias

from msgspec import Struct

Progress: TypeAlias = Literal["pending", "in_progress", "done", "cancelled"]


class Todo(Struct, frozen=True):
    subject: str
    status: Progress = "pending"

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")
