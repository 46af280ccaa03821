"""Seals secrets of tenants with keys that only workers and operators hold (REFOLD_CLUSTER_KEY).

A sealed value is bound to its tenant and name: as the row of another tenant it does not open. The first
key of the file seals and each opens, so that a key is replaced without a moment in which
something cannot be read. The cipher is AES-256-GCM.
"""

import base64
import binascii
import os
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
        """Read the keys: one in base64 a line. Raises `BadInput` if others can read the
        file.
        """
        try:
            if file.stat().st_mode & 0o007:
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
        nonce = os.urandom(_NONCE_BYTES)
        sealed = _cipher(self.keys[0]).encrypt(nonce, text.encode(), _context(tenant, name))
        return _FORMAT_BYTE + _id(self.keys[0]) + nonce + sealed

    def open(self, sealed: bytes, tenant: str, name: str) -> str:
        """Decrypt a sealed value. Raises `BadInput` if no key fits, or it belongs to
        another tenant or name.
        """
        from cryptography.exceptions import InvalidTag  # an extra

        nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
        for key in self.keys:
            if sealed.startswith(_FORMAT_BYTE + _id(key)):
                try:
                    content = sealed[_HEAD_BYTES:]
                    return (
                        _cipher(key)
                        .decrypt(nonce, content, _context(tenant, name))
                        .decode()
                    )
                except (InvalidTag, ValueError) as error:
                    raise BadInput(
                        f"the secret {name!r} of {tenant} was changed, or is of another tenant: "
                        "store it again"
                    ) from error
        raise BadInput(
            f"no key of REFOLD_CLUSTER_KEY opens the secret {name!r} of {tenant}: add the key that "
            "sealed it, or store the secret again"
        )

    def is_newest(self, sealed: bytes) -> bool:
        return sealed.startswith(_FORMAT_BYTE + _id(self.keys[0]))


def _decode(line: str, file: Path) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise BadInput(
            f"{file} has a line that is not {_KEY_BYTES} bytes in base64: {_HOW_TO_MAKE}"
        )
    return key


def _context(tenant: str, name: str) -> bytes:
    return f"refold\0{tenant}\0{name}".encode()


def _id(key: bytes) -> bytes:
    return sha256(b"refold key id" + key).digest()[:_ID_BYTES]


def _cipher(key: bytes) -> Any:
    aead: Any = import_module("cryptography.hazmat.primitives.ciphers.aead")  # an extra
    return aead.AESGCM(key)
