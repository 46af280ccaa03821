"""Which variables and settings are secret, and text without secrets.

For output and logs outside a session; within one, its redactor does this.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from refold.config.credentials import read
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.session.redactor import MASK, Redactor

_SECRET = re.compile(
    r"(?:^|[_.-])(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|AUTH)S?$", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password@ of an address


def masks_of(environ: Mapping[str, str], places: Paths | None) -> Redactor:
    """Never raises: keys that cannot be read cannot be shown either."""
    values = [value for name, value in environ.items() if is_secret(name)]
    if places is not None:
        with suppress(BadInput):
            values += read(places.credentials).values()
    return Redactor(values)


def is_secret(name: str) -> bool:
    """Whether a variable or setting of this name holds a secret."""
    return bool(_SECRET.search(name))


def clean(text: str, masks: Redactor) -> str:
    """`text` without secrets, whatever bytes it was decoded from."""
    return masks.mask(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def shown(key: str, value: object, masks: Redactor) -> object:
    """The value of a setting without secrets."""
    match value:
        case str():
            if is_secret(key):
                return MASK.decode() if value else value
            return _LOGIN.sub(MASK.decode(), clean(value, masks))
        case dict():
            items = cast("dict[str, object]", value).items()
            return {name: shown(name, each, masks) for name, each in items}
        case list() | tuple():
            return [shown(key, each, masks) for each in cast("list[object]", value)]
        case _:
            return value
