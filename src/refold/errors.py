"""The exceptions that this package raises.

    RefoldError
    ├── BadInput              input of the user is invalid; says what to change
    │   └── NoModel           no model is configured; says how to get one
    ├── ProviderError         the model could not be called, or did not answer
    │   ├── Overloaded        try again later; may say when
    │   ├── Unreachable       no connection, or it broke; trying again may help
    │   └── Refused           trying again will not help
    │       ├── ToolRefused   the definition of one tool is not accepted
    │       └── TooLong       the request does not fit the model's window
    ├── JournalError          the journal cannot be read or written; open it again
    │   ├── Corrupt           the chain is broken: says where and what is lost
    │   │   └── WrongFormat   another version of refold wrote it: says which format it has
    │   ├── Conflict          another writer has written since this one read
    │   ├── Disconnected      the place of the journal cannot be reached now; try again
    │   ├── Held              another live process is the writer: says which
    │   └── Fenced            another writer has the session now
    └── ToolFailed            raised inside a tool, for the model to read
        └── ConnectionLost    to the place where the tool worked: it may have had its effect

`ProviderError` becomes a `ModelFailed` event. `ToolFailed` becomes an `Ended` event, which is
failed, or unknown if the connection was lost. Neither leaves the engine. Any other exception
that a tool raises is a bug; the model gets it as a failure, too. Only a `JournalError` stops a
session.
"""

import errno
from typing import cast

# What to do after an error of the operating system, by its number.
SYSTEM_ERROR_ADVICE = {
    errno.ENOSPC: "free up disk space, then continue",
    errno.EDQUOT: "free up disk quota, then continue",
    errno.EIO: "the disk has a fault: copy the session elsewhere and look at the disk",
    errno.EFBIG: "allow bigger files (`ulimit -f`), then continue",
    errno.EMFILE: "allow more open files (`ulimit -n`), then continue",
    errno.EROFS: "set REFOLD_HOME to a directory that can be written",
    errno.EACCES: "make it yours to write, or set REFOLD_HOME to a directory that is",
    errno.EPERM: "make it yours to write, or set REFOLD_HOME to a directory that is",
    errno.ENOTDIR: "a file stands where a directory should be: move it away",
}


class RefoldError(Exception):
    """The base class of every error that refold raises on purpose."""


class BadInput(RefoldError):
    """A setting, flag, file or name that the user or a program gave is invalid."""


class NoModel(BadInput):
    """No model is configured, so no conversation can begin."""


class ProviderError(RefoldError):
    """The model could not be called, or did not answer.

    `answer` has the bytes that arrived nevertheless.
    """

    answer: bytes = b""


class EmptyAnswer(ProviderError):
    """The model responded properly, but without any text."""


class Overloaded(ProviderError):
    """The provider is busy. Trying again may succeed after `retry_after` seconds (None:
    unknown).

    `limited`: a rate limit was reached, which lasts longer than an overload. `overload`: the
    provider works, but has too many requests, which may last minutes.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        limited: bool = False,
        overload: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after, self.limited, self.overload = retry_after, limited, overload


class Unreachable(ProviderError):
    """No connection was possible, it broke, or no answer came for too long."""


class ProxyFault(OSError):
    """A proxy refused a connection. The message names the proxy, and can be shown as it is."""


class SetupFault(OSError):
    """Certificates or proxies in the environment are invalid. A retry does not help."""


class Refused(ProviderError):
    """The provider refuses the request, and would refuse it again."""


class BadRequest(Refused):
    """The provider refuses the request for an unknown reason, perhaps because of its length."""


class ToolRefused(Refused):
    """The provider does not accept the definition of the tool with the name `tool`."""

    tool: str = ""


class TooLong(Refused):
    """The request does not fit the context window of the model."""


class JournalError(RefoldError):
    """The journal cannot be read or written."""


class Corrupt(JournalError):
    """A line of the journal does not follow from the line before: it was damaged."""

    def __init__(
        self, line: int, problem: str = "it was changed after it was written"
    ) -> None:
        super().__init__(
            f"line {line} of the journal is damaged: {problem}; "
            f"{line - 1} lines before it are good"
        )
        self.line, self.what = line, problem


class WrongFormat(Corrupt):
    """The journal is not damaged, but in the format of another version of refold."""

    def __init__(
        self, line: int, found: int, read: int, *, directory: str = "", session: str = "",
        version: str = "",
    ) -> None:  # fmt: skip
        writer = f"refold {version}" if version else "the version of refold"
        name = f"the session {session}" if session else "the session"
        which = ", which" if version else " that"
        self.what = (
            f"{name} is in journal format {found}, and this "
            f"version reads format {read}: export it with {writer}{which} wrote it"
        )
        JournalError.__init__(self, self.what)
        self.line, self.directory = line, directory


class Conflict(JournalError):
    """The journal has another length than the writer expected: another process has written."""


class Disconnected(JournalError):
    """The connection to the journal was lost, or its database cannot be reached."""


class Held(JournalError):
    """Another live process writes this journal."""


class Fenced(JournalError):
    """Another process has opened the session to write it, so this one may not any more."""


class ToolFailed(RefoldError):
    """The tool failed. The message is written for the model."""


class ConnectionLost(ToolFailed):
    """The connection to the place of a call broke. The call may have had its effect."""


def first(error: BaseException) -> BaseException:
    """Return the first error inside exception groups, or `error` itself if it is not a group."""
    if isinstance(error, BaseExceptionGroup):
        return first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def reason_of(error: Exception) -> str:
    """Return the reason of an error, for a sentence that already names the file.

    The full text of an `OSError` would name the file again.
    """
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    words = error.strerror if isinstance(error, OSError) else None
    return words if isinstance(words, str) else str(error)
