"""A replacement for msgspec in places, where msgspec is not installed.

The program in a place imports it under the name `msgspec`. It has what the modules of `place`
use of msgspec's records, without validation. This module is sent unchanged, so it is written
for Python 3.8.
"""

from __future__ import annotations

import json as _json
from typing import Any, ClassVar, Dict, Tuple  # noqa: UP035

_NO_DEFAULT = object()


class UnsetType:
    pass


globals()["UNSET"] = UnsetType()


class Raw(bytes):
    pass


class MsgspecError(Exception):
    pass


class DecodeError(MsgspecError):
    pass


class Struct:
    """The base class of records. The annotations of a subclass are its fields, in order."""

    __struct_fields__: ClassVar[Tuple[str, ...]] = ()  # noqa: UP006
    _frozen: ClassVar[bool] = False
    _kw_only: ClassVar[bool] = False
    _defaults: ClassVar[Dict[str, Any]] = {}  # noqa: UP006

    def __init_subclass__(
        cls, frozen: bool | None = None, kw_only: bool = False, **_options: Any
    ) -> None:
        super().__init_subclass__()
        # `inspect.get_annotations` exists since 3.10.
        annotations = vars(cls).get("__annotations__", {})
        own = [name for name, kind in annotations.items() if "ClassVar" not in str(kind)]
        before = [name for name in cls.__struct_fields__ if name not in own]
        cls.__struct_fields__ = (*before, *own)
        cls._frozen = cls._frozen if frozen is None else frozen
        cls._kw_only = kw_only
        cls._defaults = {
            name: getattr(cls, name, _NO_DEFAULT) for name in cls.__struct_fields__
        }

    def __init__(self, *values: Any, **keywords: Any) -> None:
        fields = self.__struct_fields__
        if len(values) > len(fields) or (values and self._kw_only):
            raise TypeError(f"too many values for {type(self).__name__}")
        given: Dict[str, Any] = dict(zip(fields, values))  # noqa: B905, UP006
        if given.keys() & keywords.keys() or keywords.keys() - set(fields):
            raise TypeError(f"{type(self).__name__} has no such field")
        given.update(keywords)
        for name in fields:
            value = given.get(name, self._defaults[name])
            if value is _NO_DEFAULT:
                raise TypeError(f"{type(self).__name__} needs {name}")
            if name not in given and type(value) in (list, dict, set):
                value = value.copy()
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError(f"{type(self).__name__} is frozen")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self)) if self._frozen else id(self)

    def __repr__(self) -> str:
        pairs = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__]
        return f"{type(self).__name__}({', '.join(pairs)})"


def replace(record: Any, **changes: Any) -> Any:
    """Return a copy of the record in which `changes` replace fields."""
    values = {name: getattr(record, name) for name in record.__struct_fields__}
    return type(record)(**{**values, **changes})


class structs:
    replace = staticmethod(replace)


class json:
    """Converts records of plain values to JSON and back, without checking field types."""

    @staticmethod
    def encode(record: Any) -> bytes:
        values = {name: getattr(record, name) for name in record.__struct_fields__}
        return _json.dumps(values).encode()

    @staticmethod
    def decode(data: bytes, type: Any) -> Any:
        """Return a record of the class `type`, without unknown fields. Raises `DecodeError`."""
        try:
            values = _json.loads(data)
            known = {
                name: values[name] for name in type.__struct_fields__ if name in values
            }
            return type(**known)
        except (ValueError, TypeError) as error:
            raise DecodeError(str(error)) from error


def _values(record: Any) -> Tuple[Any, ...]:  # noqa: UP006
    return tuple(getattr(record, name) for name in record.__struct_fields__)
