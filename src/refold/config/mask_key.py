"""The key from which this installation computes the tags in masks of secrets.

The key is created when it is first needed. A program that has the key and a mask could test
whether a value is the masked secret, so the key is private, and no export contains it.
"""

from contextlib import suppress
from pathlib import Path

from refold.safe_open import create_complete_file, read_regular

KEY_FILE = "mask.key"
_KEY_BYTES = 32


def read_mask_key(data: Path) -> bytes:
    """Return the key in the data directory; create it if there is none.

    If the key cannot be stored, return a random one for this process only.
    """
    from secrets import token_bytes  # imported late: rarely needed

    file = data / KEY_FILE
    with suppress(OSError):
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            create_complete_file(file, token_bytes(_KEY_BYTES))
        key, size = read_regular(file, _KEY_BYTES, follow=False)
        if size == _KEY_BYTES:
            return key
    return token_bytes(_KEY_BYTES)
