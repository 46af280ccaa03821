"""Short names of models, such as `sonnet`: each means the newest model of a family. Pure.

`app.models` knows the providers, and which of them have a key. `known_models` lists what a
provider sells.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from refold.provider.known_models import seller
from refold.provider.prices import vendor_name

# A pattern matches the whole name of a model; its groups are the parts of the version.
_FAMILY_PATTERNS: Mapping[str, str] = {
    "sonnet": r"claude-sonnet-(\d{1,2})(?:[-.](\d{1,2}))?",
    "opus": r"claude-opus-(\d{1,2})(?:[-.](\d{1,2}))?",
    "haiku": r"claude-haiku-(\d{1,2})(?:[-.](\d{1,2}))?",
    "gpt": r"gpt-(\d{1,2})(?:\.(\d{1,2}))?(?:-sol)?",
    "mini": r"gpt-(\d{1,2})(?:\.(\d{1,2}))?-mini",
    "flash": r"gemini-(\d{1,2})(?:\.(\d{1,2}))?-flash",
    "flash-lite": r"gemini-(\d{1,2})(?:\.(\d{1,2}))?-flash-lite",
}
# The providers whose known models are searched, and the form of names that their API
# accepts: the list has further spellings, and models that a seller offers by another API.
_NAME_PATTERNS: Mapping[str, str] = {
    "anthropic": r"claude-[a-z]+-[\d-]+",
    "openai": r"gpt-[^/]+",
    "gemini": r"gemini-[^/]+",
    "openrouter": r"(?:anthropic|openai|google)/.+",
}


def newest_model(alias: str, provider: str, models: Iterable[str] = ()) -> str:
    """The newest model of a family that this provider has; "" if it has none.

    `models` are further models that the provider reported.
    """
    pattern = _FAMILY_PATTERNS.get(alias.lower())
    if pattern is None:
        return ""
    vendor = vendor_name(provider)
    known = (
        name
        for model in (seller(vendor).models if vendor in _NAME_PATTERNS else ())
        for name in model.names
        if re.fullmatch(_NAME_PATTERNS[vendor], name)
    )
    candidates = [
        (_version(match), -len(name), name)
        for name in (*known, *models)
        # A provider that sells other makers' models puts the maker before a slash.
        if (match := re.fullmatch(pattern, name.rpartition("/")[2]))
    ]
    return max(candidates)[2] if candidates else ""


def model_names(provider: str) -> Iterator[str]:
    """The listed models of this provider, by names that its API accepts; new ones first."""
    vendor = vendor_name(provider)
    spelling = _NAME_PATTERNS.get(vendor, "")
    names = list[str]()
    for model in seller(vendor).models if spelling else ():
        names += [name for name in model.names if re.fullmatch(spelling, name)][:1]
    return iter(sorted(names, key=_numbers, reverse=True))


def _numbers(name: str) -> list[int]:
    """The numbers of a version; one with more digits is a date."""
    return [int(number) for number in re.findall(r"(?<!\d)\d{1,2}(?!\d)", name)]


def _version(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part or 0) for part in match.groups())
