"""What it means that a program failed: which `ProviderError`, in one sentence.

Pure. Programs tell their troubles in words and not in codes, so the words are
looked at: only what they clearly say is taken for more than a failure.
"""

import re
import signal

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.command.reading import ENDLESS
from refold.provider.command.spec import CommandSpec
from refold.provider.failures import masked
from refold.values.clean import clean

_LOGIN = (
    r"not logged in|please (run )?/?log ?in|/login\b|login required|log in (again|with)"
    r"|auth(entication)? (method|failed|required|error)|authentication_|unauthenticated"
    r"|unauthorized|\b401\b|(invalid|incorrect|missing|no|valid) ?(x-)?api[ _-]key"
    r"|(set|specify|provide|export)\b.{0,30}[A-Z]_(API_)?KEY\b"
    r"|api[ _-]key (is )?(not|missing|invalid|expired)|token (has )?expired"
)
_TOO_LONG = (
    r"prompt (is )?too long|context[ _](length|window)|maximum context|input (is )?too long"
    r"|too many (input )?tokens|token count .* exceeds|request[ _]too[ _]large"
)
_NO_MODEL = (
    r"models?\b.{0,80}\b(not (found|exist|supported|available)|does not exist|unknown|invalid)"
    r"|(unknown|invalid|unsupported|no such) model|not_found_error|issue with the selected model"
)
_BUSY = (
    r"\b(429|500|502|503|504|529)\b|overloaded|rate.?limit|too many requests|usage limit"
    r"|quota|resource_exhausted|hit your .{0,20}limit|internal server error"
)
_NO_LINE = (
    r"econnrefused|econnreset|enotfound|eai_again|etimedout|connection (refused|reset|error|failed)"
    r"|unable to connect|could not connect|fetch failed|stream disconnected|lookup address"
    r"|network (error|is unreachable)|timed? ?out|socket hang up|error sending request"
)
_LONGEST = 300


def failing(spec: CommandSpec, model: str, said: str, ending: str = "") -> ProviderError:
    """The error for what a program said of its trouble. `ending`: how it ended."""
    end = f" ({ending})" if ending else ""
    words = f"{end}: {tail(said)}" if said.strip() else end
    if said == ENDLESS:
        return Refused(f"{spec.label} gave no proper answer: {ENDLESS}")

    def says(pattern: str) -> bool:
        return re.search(pattern, said, re.IGNORECASE) is not None

    if says(_TOO_LONG):
        return TooLong(f"The conversation does not fit {_named(spec, model)}{words}")
    if says(_LOGIN):
        advice = spec.login or "log in with it, or check its key"
        return Refused(f"{spec.label} is not let in by its service: {advice}{words}")
    if says(_NO_MODEL):
        return Refused(f"{spec.label} does not take the model {model!r}{words}")
    if says(_BUSY):
        return Overloaded(f"{spec.label} is too busy or at its limit{words}")
    if says(_NO_LINE):
        return Unreachable(f"{spec.label} does not reach its service{words}")
    if ending.startswith("killed"):
        return Unreachable(f"{spec.label} ended before its answer did{words}")
    return Refused(f"{spec.label} failed{words}")


def empty(spec: CommandSpec, strange: str, last_words: str) -> ProviderError:
    """For one that ended well and said nothing that is an answer."""
    if strange.strip():
        return Refused(
            f"{spec.label} printed no answer that can be read, it begins {head(strange)!r}: "
            "check which version is installed, or the places in its settings"
        )
    if last_words.strip():
        return failing(spec, "", last_words, "it ended well, without an answer")
    return Unreachable(f"{spec.label} ended without an answer")


def cut_off(spec: CommandSpec, last_words: str) -> ProviderError:
    words = f": {tail(last_words)}" if last_words.strip() else ""
    return Unreachable(f"the answer of {spec.label} broke off before its end{words}")


def silent(spec: CommandSpec, idle: float, last_words: str) -> ProviderError:
    words = f": {tail(last_words)}" if last_words.strip() else ""
    return Unreachable(f"{spec.label} printed nothing for {idle:g} seconds{words}")


def missing(spec: CommandSpec, program: str) -> str:
    how = f": {spec.install}" if spec.install else ""
    return f"{program!r}, which {spec.label} needs, is not installed here{how}"


def ended(code: int | None) -> str:
    """How a program ended, in words."""
    if code is None:
        return "it did not end"
    if code >= 0:
        return f"exit code {code}" if code else ""
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(text: str) -> str:
    """The end of `text` on one line, fit to stand in a sentence, without its stack."""
    line = _line(re.sub(r"^\s+at .*$", "", text[-4000:], flags=re.MULTILINE))
    return line if len(line) <= _LONGEST else "…" + line[1 - _LONGEST :].lstrip()


def head(text: str) -> str:
    line = _line(text[:400])
    return line if len(line) <= 80 else line[:79] + "…"


def _line(text: str) -> str:
    printable = (c if c.isprintable() else " " for c in masked(clean(text), ""))
    return " ".join("".join(printable).split())


def _named(spec: CommandSpec, model: str) -> str:
    return f"{spec.label}'s {model!r}" if model else spec.label
