"""Unpacks what a server sent compressed, up to a limit: a few bytes may unpack to gigabytes.

`provider.http` does the same for answers of models, which have other limits.
"""

import zlib

from refold.provider.http import Broken

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_RAW = -zlib.MAX_WBITS  # what some servers mean by "deflate"


class Unpacker:
    """`add` what arrived; `content` has at most `limit` bytes, and then it is `full`."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding, self._limit = encoding.strip().lower(), limit
        self._found = bytearray()
        self._zlib = None
        self.full = False
        if self._encoding in ("gzip", "x-gzip", "deflate"):
            self._zlib = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
        elif self._encoding not in ("", "identity"):
            raise Broken(f"compressed the page as {encoding!r}, which was not requested")

    @property
    def content(self) -> bytes:
        return bytes(self._found)

    def add(self, data: bytes) -> None:
        # One byte more than the limit, to know that there is more.
        room = self._limit + 1 - len(self._found)
        self._found += self._unpacked(data, room) if self._zlib else data[:room]
        if len(self._found) > self._limit:
            del self._found[self._limit :]
            self.full = True

    def _unpacked(self, data: bytes, room: int) -> bytes:
        assert self._zlib is not None
        try:
            return self._zlib.decompress(data, room)
        except zlib.error as error:
            if self._encoding != "deflate" or self._found:
                raise Broken(
                    f"sent a body that cannot be decompressed ({error})"
                ) from error
        self._encoding, self._zlib = "raw deflate", zlib.decompressobj(wbits=_RAW)
        return self._unpacked(data, room)
