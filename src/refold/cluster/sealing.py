"""Seals secrets of tenants with keys that only workers and operators hold (REFOLD_CLUSTER_KEY).

A sealed value is bound to its tenant and name, so it cannot be opened as a value of another
tenant. The first key of the file seals values, and every key of the file can open them. So
all values stay readable while a key is being replaced. The cipher is AES-256-GCM.
"""

import base64
import binascii
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold.errors import BadInput, reason_of

_FORMAT_BYTE = b"\x01"
_KEY_BYTES, _NONCE_BYTES, _ID_BYTES = 32, 12, 4
_HEAD_BYTES = len(_FORMAT_BYTE) + _ID_BYTES + _NONCE_BYTES
_HOW_TO_MAKE = "`openssl rand -base64 32` makes one"


class SealingKeys(Struct, frozen=True):
    """The keys of a file, the newest first."""

    keys: Sequence[bytes]

    @classmethod
    def read(cls, file: Path) -> "SealingKeys":
        """Read the keys from a file with one key in base64 a line.

        Raises `BadInput` if others can read the file.
        """
        try:
            if file.stat().st_mode & stat.S_IRWXO:
                raise BadInput(
                    f"{file} holds keys and others can read it: chmod 600 {file}"
                )
            lines = file.read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"the keys of REFOLD_CLUSTER_KEY in {file} cannot be read: {reason_of(error)}"
            ) from error
        if not lines:
            raise BadInput(f"{file} has no key: {_HOW_TO_MAKE}")
        return cls([_decode(line, file) for line in lines])

    def seal(self, text: str, tenant: str, name: str) -> bytes:
        """Encrypt a value with the newest key. Only `open` with this tenant and name reads
        it.
        """
        newest_key = self.keys[0]
        nonce = os.urandom(_NONCE_BYTES)
        content = _cipher(newest_key).encrypt(nonce, text.encode(), _bound_to(tenant, name))
        return _FORMAT_BYTE + _key_id(newest_key) + nonce + content

    def open(self, sealed: bytes, tenant: str, name: str) -> str:
        """Decrypt a sealed value. Raises `BadInput` if no key fits, or if the value belongs
        to another tenant or name.
        """
        from cryptography.exceptions import InvalidTag  # an extra

        nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
        content = sealed[_HEAD_BYTES:]
        for key in self.keys:
            if not sealed.startswith(_FORMAT_BYTE + _key_id(key)):
                continue
            try:
                text = _cipher(key).decrypt(nonce, content, _bound_to(tenant, name))
                return text.decode()
            except (InvalidTag, ValueError) as error:
                raise BadInput(
                    f"the secret {name!r} of {tenant} was changed, or is of another tenant: "
                    "store it again"
                ) from error
        raise BadInput(
            f"no key of REFOLD_CLUSTER_KEY opens the secret {name!r} of {tenant}: add the key that "
            "sealed it, or store the secret again"
        )

    def is_sealed_by_newest(self, sealed: bytes) -> bool:
        """Whether the newest key has sealed the value."""
        return sealed.startswith(_FORMAT_BYTE + _key_id(self.keys[0]))


def _decode(line: str, file: Path) -> bytes:
    """Return the key in a line of `file`. Raises `BadInput` if the line is not a key."""
    try:
        key = base64.b64decode(line, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise BadInput(
            f"{file} has a line that is not {_KEY_BYTES} bytes in base64: {_HOW_TO_MAKE}"
        )
    return key


def _bound_to(tenant: str, name: str) -> bytes:
    """Return the bytes that bind a sealed value to this tenant and name."""
    return f"refold\0{tenant}\0{name}".encode()


def _key_id(key: bytes) -> bytes:
    """Return the bytes in a sealed value that say which key has sealed it."""
    return sha256(b"refold key id" + key).digest()[:_ID_BYTES]


def _cipher(key: bytes) -> Any:
    aead: Any = import_module("cryptography.hazmat.primitives.ciphers.aead")  # an extra
    return aead.AESGCM(key)
