"""Decides which values of variables and settings are secret, and masks them in text.

These values are secret: variables that the user lists in `secret_variables`, refold's own
credentials, texts that match a pattern in `session.secret_patterns`, and the values of
variables with a secret name, such as API_KEY. The value of a variable with a secret name is not
secret if it is a word, a path, or a part of the session's paths.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import cast

from refold.config.credentials import read
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.session.redactor import MASK_BYTES, Redactor
from refold.values.text import MIN_SECRET_CHARS

_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|AUTH)S?$"
    r"|[_.-](?:PASS|PWD|PASSPHRASE|PAT)$|^(?:PGPASSWORD|SSHPASS)$",
    re.IGNORECASE,
)
# Headers that are secret although their names do not say so.
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
_MAX_WORD_CHARS = 14  # letters
_WORD_PATTERN = re.compile(r"[a-z]+|[A-Z]+|[A-Z][a-z]+")
_UNSPEAKABLE_PART = re.compile(r"[^aeiouy]{5}|[aeiouy]{4}|^[^aeiouy]+$", re.IGNORECASE)
_SOUNDS_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASS|AUTH|CRED|PRIVATE|COOKIE|SESSION|(?:^|_)(?:PAT|DSN|JWT)(?:_|$)",
    re.IGNORECASE,
)
_LOGIN_PATTERN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password@ of an address
_USER_PATTERN = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY_PATTERN = re.compile(r"(?<=://)([^?\s]*\?)[^#\s]+")
# A word such as "--name=value", "NAME=value" or "Name: value", but not an address.
_NAMED_VALUE = re.compile(
    r"(?P<start>-{0,2}(?P<name>[\w.-]+)(?:=|: ?(?!//)))(?P<value>.+)", re.DOTALL
)


def masks_of(environ: Mapping[str, str], places: Paths | None) -> Redactor:
    """Return a redactor that masks the secrets in `environ` and the stored keys.

    If the stored keys cannot be read, only the secrets in `environ` are masked.
    """
    values = list(secrets_by_name(environ.items(), directories=()))
    if places is not None:
        with suppress(BadInput):
            values += read(places.credentials).values()
    return Redactor(values)


def is_secret(name: str) -> bool:
    """Whether a variable or setting of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def secrets_by_name(
    variables: Iterable[tuple[str, str]], directories: Iterable[str]
) -> Iterator[str]:
    """Yield the values of those variables and headers that have secret names.

    For a header like `Authorization: Bearer …` its last word is yielded, too. A value that is a
    part of the path of one of `directories` is left out.
    """
    paths = tuple(directories)
    for name, value in variables:
        if not (is_secret(name) or name.lower() in _SECRET_HEADERS):
            continue
        _, _, last_word = value.rpartition(" ")
        for text in dict.fromkeys((value, last_word)):  # each once
            if _can_be_secret(text) and not any(text in path for path in paths):
                yield text


def passwords_in(values: Iterable[str]) -> Iterator[str]:
    """Yield the passwords in addresses (`scheme://user:password@host`)."""
    for value in values:
        for login in _LOGIN_PATTERN.findall(value):
            _, _, password = login.partition(":")
            if _can_be_secret(password):
                yield password


def _can_be_secret(value: str) -> bool:
    """Whether the value is long enough for a secret, and neither a word nor a path."""
    if len(value) < MIN_SECRET_CHARS or _is_word(value):
        return False
    if value.startswith(("~/", "./", "../", "file:")):
        return False
    if not value.startswith("/"):
        return True
    # A secret in base64 can begin with "/", too, but hardly with a directory of this machine.
    top_directory = value.split("/")[1]
    return not (top_directory and os.path.isdir(f"/{top_directory}"))


def _is_word(value: str) -> bool:
    """Whether the value looks like a short, pronounceable word, such as "Token"."""
    if len(value) > _MAX_WORD_CHARS or not _WORD_PATTERN.fullmatch(value):
        return False
    return not _UNSPEAKABLE_PART.search(value)


def may_be_secret(name: str, value: str, masks: Redactor) -> bool:
    """Whether a variable may hold a secret, so that passing it on needs the user's consent.

    Unlike `is_secret`, this is also true for a name that only suggests a secret, and for a
    value that contains credentials.
    """
    content = value.encode("utf-8", "replace")
    return bool(
        is_secret(name)
        or _SOUNDS_SECRET.search(name)
        or _LOGIN_PATTERN.search(value)
        or masks.mask(content) != content
    )


def clean(text: str, masks: Redactor) -> str:
    """Return `text` with its secrets masked.

    Characters that UTF-8 cannot encode are replaced.
    """
    return masks.mask(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def command_without_secrets(command: Iterable[str], masks: Redactor) -> str:
    """Return the command in a form that other people may see.

    Keys are masked, and so are values of options, headers and variables whose names suggest a
    secret. Addresses lose their user, password and query.
    """
    from refold.values.key_shapes import looks_like_key  # only where servers are listed

    shown = list[str]()
    mask = MASK_BYTES.decode()
    after_secret = False  # the last word is an option whose value is a secret
    for word in command:
        named = _NAMED_VALUE.fullmatch(word)
        is_option = word.startswith("-")
        if after_secret and not is_option:
            shown.append(mask)
        elif named and may_be_secret(named["name"], named["value"], masks):
            shown.append(f"{named['start']}{mask}")
        elif looks_like_key(word):
            shown.append(mask)
        else:
            shown.append(address_without_secrets(clean(word, masks)))
        is_bare_option = is_option and not named
        name = word.lstrip("-")
        after_secret = is_bare_option and may_be_secret(name, value="", masks=masks)
    return " ".join(shown)


def address_without_secrets(address: str) -> str:
    """Return an address without its user, password and query."""
    return _QUERY_PATTERN.sub(r"\1…", _USER_PATTERN.sub("", address))


def without_secrets(key: str, value: object, masks: Redactor) -> object:
    """Return the value of the setting `key` with its secrets masked."""
    match value:
        case str():
            if is_secret(key):
                return MASK_BYTES.decode() if value else value
            return _LOGIN_PATTERN.sub(MASK_BYTES.decode(), clean(value, masks))
        case dict():
            items = cast("dict[str, object]", value).items()
            return {name: without_secrets(name, item, masks) for name, item in items}
        case list() | tuple():
            return [
                without_secrets(key, item, masks) for item in cast("list[object]", value)
            ]
        case _:
            return value
