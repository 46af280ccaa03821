"""Explains why a program failed, as a `ProviderError` with one sentence.

The functions are pure. Programs report problems in words instead of codes, so their output is
searched for known phrases. Only the last error in a log counts, because the program recovered
from earlier ones.
"""

import re
import signal

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.command.output import TOO_MUCH_OUTPUT
from refold.provider.command.spec import CommandSpec
from refold.provider.error_mapping import mask_secrets
from refold.values.printable_names import shorten
from refold.values.text import clean

# A number counts as a status only in these contexts: elsewhere it may be a line, a size or
# a time.
_STATUS_PATTERN = (
    r"(?:(?:http|http/[\d.]+|status|code|error|got|received|returned|responded with)\W{{1,4}}"
    r"(?:{0})\b|[(\[](?:{0})[)\]]|^\W{{0,3}}(?:{0})\b)"
)
_LOGIN_PATTERN = (
    r"not logged in|please (run )?/?log ?in|/login\b|login required|log in (again|with)"
    r"|auth(entication)? (method|failed|required|error)|authentication_|unauthenticated"
    r"|unauthorized|(invalid|incorrect|missing|no|valid) ?(x-)?api[ _-]key"
    r"|(set|specify|provide|export)\b.{0,30}[A-Z]_(API_)?KEY\b"
    r"|api[ _-]key (is )?(not|missing|invalid|expired)|token (has )?expired|"
) + _STATUS_PATTERN.format("401")
_TOO_LONG_PATTERN = (
    r"prompt (is )?too long|context[ _](length|window)|maximum context|input (is )?too long"
    r"|too many (input )?tokens|token count .* exceeds|request[ _]too[ _]large"
)
_NO_MODEL_PATTERN = (
    r"models?\b.{0,80}\b(not (found|exist|supported|available)|does not exist|unknown|invalid)"
    r"|(unknown|invalid|unsupported|no such) model|not_found_error|issue with the selected model"
)
_BUSY_PATTERN = (
    r"overloaded|(?<![a-z])rate.?limit|too many requests|usage limit|resource_exhausted"
    r"|(?<![a-z])quotas?(?![a-z])|hit your .{0,20}limit|internal server error|bad gateway|service unavailable|"
) + _STATUS_PATTERN.format("429|500|502|503|504|529")
_NO_CONNECTION_PATTERN = (
    r"(?<![a-z])(econnrefused|econnreset|enotfound|eai_again|etimedout)(?![a-z])|connection (refused|reset|error|failed)"
    r"|unable to connect|could not connect|fetch failed|stream disconnected|lookup address"
    r"|network (error|is unreachable)|timed? ?out|socket hang up|error sending request"
)
# Matches a line that reports an error. The second pattern matches one that reports a
# recovery.
_ERROR_PATTERN = r"error|fail|fatal|exception|cannot|could not|unable to"
_RECOVERED_PATTERN = r"retrying|will retry|reconnecting"
_STACK_PATTERN = re.compile(r"^\s+at .*$", re.MULTILINE)
_MAX_CAUSE_LINES = 20  # the number of lines, counted from the end
_LINES_WITHOUT_ERROR = 3  # the last lines of a log in which no line is an error
_MAX_TAIL_CHARS = 300
_MAX_SEARCHED_CHARS = 4000  # at the end of a log, for its tail


def failure(spec: CommandSpec, model: str, output: str, ending: str = "") -> ProviderError:
    """Return the error for a failed run. `output` is the text in which the program reports it.

    If the program has only exited, without reporting an error, `output` is the end of its log,
    and `ending` says how it exited.
    """
    details = f" ({ending})" if ending else ""
    if output.strip():
        details = f"{details}: {tail(output)}"
    if output == TOO_MUCH_OUTPUT:
        return Refused(f"{spec.label} gave no valid response: {TOO_MUCH_OUTPUT}")
    cause = _cause(output) if ending else output

    def says(pattern: str) -> bool:
        return re.search(pattern, cause, re.IGNORECASE | re.MULTILINE) is not None

    if says(_TOO_LONG_PATTERN):
        return TooLong(f"The conversation does not fit {_model_name(spec, model)}{details}")
    if says(_LOGIN_PATTERN):
        advice = spec.login or "log in with it, or check its key"
        return Refused(f"{spec.label} could not log in to its service: {advice}{details}")
    if says(_NO_MODEL_PATTERN):
        return Refused(f"{spec.label} does not accept the model {model!r}{details}")
    if says(_BUSY_PATTERN):
        return Overloaded(f"{spec.label} is too busy or at its limit{details}")
    if says(_NO_CONNECTION_PATTERN):
        return Unreachable(f"{spec.label} cannot reach its service{details}")
    if ending.startswith("killed"):
        return Unreachable(f"{spec.label} ended before its response was complete{details}")
    return Refused(f"{spec.label} failed{details}")


def empty_output_error(spec: CommandSpec, strange: str, stderr_tail: str) -> ProviderError:
    """Return the error for a program that exited with 0 but printed no response.

    `strange` is a line that is not JSON, although it should be; "" if there is none.
    """
    if strange.strip():
        return Refused(
            f"{spec.label} printed no answer that can be read, it begins {head(strange)!r}: "
            "check which version is installed, or the places in its settings"
        )
    if stderr_tail.strip():
        return failure(
            spec,
            model="",
            output=stderr_tail,
            ending="it ended with exit code 0, without an answer",
        )
    return Unreachable(f"{spec.label} ended without an answer")


def cut_off_error(spec: CommandSpec, stderr_tail: str) -> ProviderError:
    words = f": {tail(stderr_tail)}" if stderr_tail.strip() else ""
    return Unreachable(f"the answer of {spec.label} broke off before its end{words}")


def silence_error(spec: CommandSpec, idle: float, stderr_tail: str) -> ProviderError:
    words = f": {tail(stderr_tail)}" if stderr_tail.strip() else ""
    return Unreachable(f"{spec.label} printed nothing for {idle:g} seconds{words}")


def missing_program_text(spec: CommandSpec, program: str) -> str:
    advice = f": {spec.install}" if spec.install else ""
    return f"{program!r}, which {spec.label} needs, is not installed here{advice}"


def describe_end(code: int | None) -> str:
    """Describe the exit of a program, such as "exit code 1"; "" for the exit code 0.

    The code is negative for a signal; None means that the program still runs.
    """
    if code is None:
        return "it did not end"
    if code >= 0:
        return f"exit code {code}" if code else ""
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(text: str) -> str:
    """Return the end of `text` as one line without a stack trace, for use in a sentence."""
    line = _one_line(_STACK_PATTERN.sub("", text[-_MAX_SEARCHED_CHARS:]))
    if len(line) <= _MAX_TAIL_CHARS:
        return line
    return "…" + line[1 - _MAX_TAIL_CHARS :].lstrip()


def _cause(log: str) -> str:
    """Return the last error of a log and the lines after it, or else the last lines."""
    lines = [line for line in _STACK_PATTERN.sub("", log).splitlines() if line.strip()]
    not_recovered = [
        line for line in lines if not re.search(_RECOVERED_PATTERN, line, re.IGNORECASE)
    ]
    candidates = (not_recovered or lines)[-_MAX_CAUSE_LINES:]
    for index in reversed(range(len(candidates))):
        if re.search(_ERROR_PATTERN, candidates[index], re.IGNORECASE):
            return "\n".join(candidates[index:])
    return "\n".join(candidates[-_LINES_WITHOUT_ERROR:])


def head(text: str) -> str:
    return shorten(_one_line(text[:400]), 80)


def _one_line(text: str) -> str:
    printable = (
        c if c.isprintable() else " " for c in mask_secrets(clean(text), secret="")
    )
    return " ".join("".join(printable).split())


def _model_name(spec: CommandSpec, model: str) -> str:
    return f"{spec.label}'s {model!r}" if model else spec.label
