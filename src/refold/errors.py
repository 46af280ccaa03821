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
    │   ├── Conflict          another writer has written since we read
    │   ├── Disconnected      where the journal is cannot be reached now; try again
    │   ├── Held              another live process is the writer: says which
    │   └── Fenced            another writer has the session now
    └── ToolFailed            raised inside a tool, for the model to read
        └── ConnectionLost    to the place where the tool worked: it may have had its effect

`ProviderError` ends as a `ModelFailed` event and `ToolFailed` as a failed `Ended`, or as an
unknown one if the connection was lost: neither leaves the engine. Anything else that a tool raises is a bug; the model gets it as a
failure, too. Only a `JournalError` stops a session.
"""

from typing import cast


class RefoldError(Exception):
    """Base of every error we raise on purpose."""


class BadInput(RefoldError):
    """A setting, flag, file or name given to us is invalid."""


class NoModel(BadInput):
    """No model is configured, so no conversation can begin."""


class ProviderError(RefoldError):
    """The model could not be asked, or did not answer.

    `answer`: what came back all the same, byte by byte.
    """

    answer: bytes = b""


class EmptyAnswer(ProviderError):
    """The model answered properly, and said nothing."""


class Overloaded(ProviderError):
    """The provider is busy. Worth another try after `retry_after` seconds.

    `limited`: a rate limit was reached, which lasts longer than an overload. `overload`: the
    provider works, but has too much to do, which may last minutes.
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
    """No connection, a broken one, or silence for too long."""


class ProxyFault(OSError):
    """A proxy did not open the way. The message names it, and is complete."""


class SetupFault(OSError):
    """What the environment says of certificates or proxies does not work: no retry helps."""


class Refused(ProviderError):
    """The provider will not do this however often it is asked."""


class BadRequest(Refused):
    """Refused for a reason that is not recognized: it may be the length of the request."""


class ToolRefused(Refused):
    """The provider does not accept the definition of one tool: `tool` is its name."""

    tool: str = ""


class TooLong(Refused):
    """The request does not fit the model's window."""


class JournalError(RefoldError):
    """The record cannot be read or written."""


class Corrupt(JournalError):
    """A line does not follow from the one before: the record was damaged."""

    def __init__(
        self, line: int, problem: str = "it was changed after it was written"
    ) -> None:
        super().__init__(
            f"line {line} of the journal is damaged: {problem}; "
            f"{line - 1} lines before it are good"
        )
        self.line, self.what = line, problem


class WrongFormat(Corrupt):
    """The journal is in a format of another version of refold. Nothing is wrong with it."""

    def __init__(
        self, line: int, found: int, read: int, *, directory: str = "", session: str = "",
        version: str = "",
    ) -> None:  # fmt: skip
        writer = f"refold {version}" if version else "the version of refold"
        self.what = (
            f"the session{session and f' {session}'} is in journal format {found}, and this "
            f"version reads format {read}: export it with {writer} that wrote it"
        )
        if version:
            self.what = self.what.replace(" that wrote it", ", which wrote it")
        JournalError.__init__(self, self.what)
        self.line, self.directory = line, directory


class Conflict(JournalError):
    """The journal is not as long as the writer thought."""


class Disconnected(JournalError):
    """The connection was lost, or the database of the journal cannot be reached."""


class Held(JournalError):
    """Another live process writes this journal."""


class Fenced(JournalError):
    """A later writer has opened the session."""


class ToolFailed(RefoldError):
    """The tool could not do it. The message is written for the model."""


class ConnectionLost(ToolFailed):
    """The connection to the place broke during the call, which may have had its effect."""


def first(error: BaseException) -> BaseException:
    """The first error inside the groups that task groups wrap around it."""
    if isinstance(error, BaseExceptionGroup):
        return first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


def reason_of(error: Exception) -> str:
    """The reason of an error, for a sentence that names the file: the system's own text
    names it, too.
    """
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    words = error.strerror if isinstance(error, OSError) else None
    return words if isinstance(words, str) else str(error)
