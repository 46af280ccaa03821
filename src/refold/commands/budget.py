"""/budget: show or set the budget of a turn."""

import re

from msgspec.structs import replace

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.values.usage import DEFAULT_TOKENS, NO_LIMIT, Budget
from refold.views.cost import budget_lines

_USAGE_HINT = (
    "type /budget USD, /budget tokens N, /budget calls N, /budget seconds N, or /budget off"
)
_NUMBER_FACTORS = {"k": 1_000, "m": 1_000_000, "": 1}
# a number such as 2.50, $5, 1_000 or 200k; group 2 is the factor
_NUMBER_PATTERN = re.compile(r"\$?(\d+(?:[._,]\d+)*)\s*([km]?)", re.IGNORECASE)


async def run(context: CommandContext, arguments: str) -> None:
    """Show the budget, or change one of its limits for this session."""
    session = context.session
    if arguments:
        await session.set_budget(parse_budget(arguments, session.budget))
    context.show(*budget_lines(session.view, session.budget))


def parse_budget(text: str, current: Budget) -> Budget:
    """Return the budget `current`, changed by the limit in `text`.

    For "off", return a budget without limits. Raises `BadInput` for an invalid text.
    """
    if text.lower() == "off":
        return NO_LIMIT
    kind, _, number = text.rpartition(" ")
    match kind.strip().lower():
        case "" | "usd":
            # The default limit in tokens was not chosen, so it must not stay beside a limit
            # in dollars.
            tokens = None if current.tokens == DEFAULT_TOKENS else current.tokens
            return replace(current, dollars=_amount(number, text), tokens=tokens)
        case "tokens" | "calls" as limit:
            count = _amount(number, text)
            if not count.is_integer():
                raise BadInput(f"{text!r} is not a budget: {limit} must be a whole number")
            return replace(current, **{limit: int(count)})
        case "seconds":
            return replace(current, seconds=_amount(number, text))
        case _:
            raise BadInput(f"{text!r} is not a budget: {_USAGE_HINT}")


def _amount(number: str, text: str) -> float:
    """Return `number` as a float. Raises `BadInput` if it is not a number above 0.

    The error quotes `text`, the whole argument of the command.
    """
    bad_number = BadInput(f"{text!r} is not a budget: {_USAGE_HINT}")
    match = _NUMBER_PATTERN.fullmatch(number)
    if match is None:
        raise bad_number
    digits, factor = match.groups()
    try:
        value = float(digits.replace(",", "").replace("_", ""))
    except ValueError:  # more than one point
        raise bad_number from None
    if value == 0:
        raise bad_number
    return value * _NUMBER_FACTORS[factor.lower()]
