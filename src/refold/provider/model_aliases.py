"""Resolves aliases such as `sonnet` to the newest model of a family. Pure.

`app.models` knows the providers, and for which of them there is a key. `known_models` lists the
models of each provider.
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
# The providers whose known models are searched, each with the form of names that its API
# accepts. The list has other spellings, too, and models that a seller offers by another
# API.
_NAME_PATTERNS: Mapping[str, str] = {
    "anthropic": r"claude-[a-z]+-[\d-]+",
    "openai": r"gpt-[^/]+",
    "gemini": r"gemini-[^/]+",
    "openrouter": r"(?:anthropic|openai|google)/.+",
}


def newest_model(alias: str, provider: str, models: Iterable[str] = ()) -> str:
    """Return the newest model of the family `alias` that a provider has.

    `models` are models that the provider reported, in addition to the known ones. Return "" if
    there is no such family or model.
    """
    pattern = _FAMILY_PATTERNS.get(alias.lower())
    if pattern is None:
        return ""
    newest = ""
    highest_rank = None
    for name in (*_known_names(vendor_name(provider)), *models):
        # A provider that sells other makers' models puts the maker before a slash.
        match = re.fullmatch(pattern, name.rpartition("/")[2])
        if match is None:
            continue
        rank = (_version(match), -len(name), name)  # of equal versions, the shortest name
        if highest_rank is None or rank > highest_rank:
            newest, highest_rank = name, rank
    return newest


def _known_names(vendor: str) -> list[str]:
    """Return the names of a vendor's known models that belong to a family."""
    if vendor not in _NAME_PATTERNS:
        return []
    return [
        name
        for model in seller(vendor).models
        for name in model.names
        if re.fullmatch(_NAME_PATTERNS[vendor], name)
    ]


def model_names(provider: str) -> Iterator[str]:
    """Yield the known models of a provider, the newest first, by names that its API accepts."""
    vendor = vendor_name(provider)
    pattern = _NAME_PATTERNS.get(vendor, "")
    names = list[str]()
    if pattern:
        for model in seller(vendor).models:
            accepted_names = [name for name in model.names if re.fullmatch(pattern, name)]
            names += accepted_names[:1]  # one name for each model
    return iter(sorted(names, key=_version_numbers, reverse=True))


def _version_numbers(name: str) -> list[int]:
    """Return the version in a name: its numbers of one or two digits. Dates are longer."""
    return [int(number) for number in re.findall(r"(?<!\d)\d{1,2}(?!\d)", name)]


def _version(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part or 0) for part in match.groups())
