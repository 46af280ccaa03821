"""Which addresses a rule like `web_fetch(domain:example.org)` means: hosts, never prefixes.

An address that two programs could read in two ways has no host here: no rule lets it
through, and every rule that forbids a host it mentions holds.
"""

import re
from urllib.parse import unquote, urlsplit

PREFIX = "domain:"
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\*|\[[0-9a-f:.]+\]")
_STRANGE = re.compile(r"[\x00-\x20\x7f\\]")


def domain(pattern: str) -> str:
    """The domain a pattern names, as hosts are compared; "" if it names none."""
    named = _ascii(pattern.removeprefix(PREFIX).strip()).removesuffix(".")
    good = pattern.startswith(PREFIX) and _NAME.fullmatch(named) and ".." not in named
    return named if good else ""


def allows(pattern: str, address: str) -> bool:
    return _is_in(host(address), domain(pattern))


def forbids(pattern: str, address: str) -> bool:
    wanted, found = domain(pattern), host(address)
    if found:
        return _is_in(found, wanted)
    return not wanted or wanted.removeprefix("*.").strip("*") in unquote(address).casefold()


def host(address: str) -> str:
    """The host of an http address, or "" where there is any doubt."""
    if _STRANGE.search(address):
        return ""
    try:
        parts = urlsplit(address)
        found, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or "%" in parts.netloc:
        return ""
    found = f"[{found}]" if ":" in found else _ascii(found)
    found = found.removesuffix(".")
    return found if _NAME.fullmatch(found) and "*" not in found else ""


def _is_in(found: str, wanted: str) -> bool:
    if not found or not wanted:
        return False
    if wanted == "*":
        return True
    if wanted.startswith("*."):
        return found.endswith(wanted[1:])
    return found == wanted or (found.endswith("." + wanted) and not _numbers(wanted))


def _numbers(name: str) -> bool:
    return name.startswith("[") or bool(re.fullmatch(r"[\d.]+", name))


def _ascii(name: str) -> str:
    if name.isascii():
        return name.lower()
    try:
        return name.encode("idna").decode().lower()
    except UnicodeError:
        return ""
