"""Uses the keyring of the operating system, if the package `keyring` is installed.

The backend of the keyring is foreign code: it may be absent, locked, or wait for the user. So
it is called in a thread that can be abandoned, and every failure is raised as `BadInput` with
the reason. The package is imported when it is first used, because the import is slow.
"""

from collections.abc import Callable
from threading import Thread
from typing import Protocol, TypeVar, cast

from refold.errors import BadInput

T = TypeVar("T")

SERVICE_NAME = "refold"
MAX_KEYRING_SECONDS = 30.0  # a person may have to unlock it


class _Keyring(Protocol):
    """The functions of the package `keyring` that this module calls."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """Return the stored password; None if there is none."""
        ...

    def set_password(self, service_name: str, username: str, password: str) -> None:
        """Store the password in place of an earlier password."""
        ...

    def delete_password(self, service_name: str, username: str) -> None:
        """Delete the stored password. Raises an error of `keyring` if there is none."""
        ...


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("keyring") is not None


def get(provider: str, within: float = MAX_KEYRING_SECONDS) -> str:
    """Return the stored key for `provider`; "" if there is none.

    Raises `BadInput` if the keyring fails or needs more than `within` seconds.
    """
    return (
        _ask_in_thread(lambda ring: ring.get_password(SERVICE_NAME, provider), within) or ""
    )


def store_key(provider: str, key: str, within: float = MAX_KEYRING_SECONDS) -> None:
    """Store `key` for `provider`, replacing an earlier key.

    Raises `BadInput` if the keyring fails or needs more than `within` seconds.
    """

    def store(ring: _Keyring) -> bool:
        ring.set_password(SERVICE_NAME, provider, key)
        # A disabled keyring accepts keys, but stores none.
        return ring.get_password(SERVICE_NAME, provider) == key

    if not _ask_in_thread(store, within):
        raise BadInput(
            "the keyring did not store the key: without --keyring it is stored in a file"
        )


def remove(provider: str, within: float = MAX_KEYRING_SECONDS) -> bool:
    """Remove the key of `provider`. Return False if none is stored.

    Raises `BadInput` if the keyring fails or needs more than `within` seconds.
    """

    def delete(ring: _Keyring) -> bool:
        if ring.get_password(SERVICE_NAME, provider) is None:
            return False
        ring.delete_password(SERVICE_NAME, provider)
        return True

    return _ask_in_thread(delete, within)


def _ask_in_thread(ask: Callable[[_Keyring], T], within: float) -> T:
    """Return the result of `ask(keyring)`.

    Raises `BadInput` if that fails or takes more than `within` seconds; the thread
    continues.
    """
    results: list[T] = []
    failures: list[str] = []

    def work() -> None:
        """Append the result to `results`, or the reason of a failure to `failures`."""
        from importlib import import_module

        try:
            results.append(ask(cast("_Keyring", import_module("keyring"))))
        except ImportError as error:
            failures.append(f"the package `keyring` cannot be loaded ({error}): install it")
        except Exception as error:  # backends may raise anything
            kind = type(error).__name__
            text = " ".join(str(error).split()) or kind
            if kind == "NoKeyringError":  # its own message is a long text for developers
                text = "this machine has none that can be opened from here"
            failures.append(f"the keyring cannot be used: {text}")

    thread = Thread(target=work, name="keyring", daemon=True)
    thread.start()
    thread.join(within)
    if results:
        return results[0]
    if failures:
        raise BadInput(failures[0])
    raise BadInput(f"the keyring did not answer within {within:g} s")
