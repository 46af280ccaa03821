"""What to say to a name of a provider that none has."""

from collections.abc import Iterable

from refold.errors import BadInput


def no_provider(name: str, names: Iterable[str]) -> BadInput:
    """`names` are those there are. All of them would be a wall: the nearest, or where to look."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), names, cutoff=0.5)
    way_out = (
        f"did you mean {' or '.join(near)}?" if near else "refold models --all lists them"
    )
    return BadInput(f"there is no provider {name!r}; {way_out}")
