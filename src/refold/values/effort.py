"""How hard a model should think before it answers. Each wire says it in its own words."""

from typing import Literal, TypeAlias

# "": as the provider has it when nobody says.
Effort: TypeAlias = Literal["", "low", "medium", "high", "max"]
