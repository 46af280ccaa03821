"""What a tool may tell the engine, typed. Words alone never steer it.

A tool returns one of these beside its text; no text of a tool, a file or a
model is ever searched for orders.
"""

from typing import TypeAlias

from msgspec import Struct


class Final(Struct, frozen=True, tag="final"):
    """The task is done, and this is the answer. The turn ends `final`."""

    answer: str


Control: TypeAlias = Final
