"""How far code goes that an agent writes, with what the settings say. Pure.

The stricter of the two holds, and the agent is told: in its prompt `{fan_out}` and the
names of the other fields stand for the figures. Who enforces them is above.
"""

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold.agents.profile import Leash, Profile


class Settled(Struct, frozen=True):
    """What the settings say of agents that write code. Here 0 is a figure, too."""

    leash: Leash
    steps: int  # answers in a turn of an agent that acts by code


def leashed(profile: Profile, settled: Settled) -> Profile:
    """The profile as it works under these settings."""
    own, most = profile.leash, settled.leash
    leash = Leash(
        fan_out=_stricter(own.fan_out, most.fan_out),
        at_once=_stricter(own.at_once, most.at_once),
        depth=_stricter(own.depth, most.depth),
        cell=min(own.cell or most.cell, most.cell),
        call=min(own.call or most.call, most.call),
    )
    if profile.acting != "code":
        return replace(profile, leash=leash)
    bounds = replace(profile.bounds, steps=_stricter(profile.bounds.steps, settled.steps))
    prompt, short = profile.prompt, profile.short
    for name, value in (*asdict(leash).items(), ("steps", bounds.steps)):
        prompt = prompt.replace(f"{{{name}}}", f"{value:g}")
        short = short.replace(f"{{{name}}}", f"{value:g}")
    return replace(profile, leash=leash, bounds=bounds, prompt=prompt, short=short)


def _stricter(own: int, most: int) -> int:
    return min(own or most, most)
