"""The account: what has been used up. Never rewinds, for money does not."""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import Entry, ModelAnswered, Said
from refold.values.usage import Spent, Usage

HEARS = (ModelAnswered, Said)
_KEYS_REMEMBERED = 256


class Account(Struct, frozen=True):
    spent: Spent = Spent()
    by_model: tuple[tuple[str, Spent], ...] = ()  # in the order they first answered
    last: Usage = Usage()  # of the newest answer: how full the window is
    calls: int = 0  # ids given out; the next call's id is the next number
    client_keys: tuple[str, ...] = ()  # the newest ones


def apply(account: Account, entry: Entry) -> Account:
    match entry.event:
        case ModelAnswered(message, usage, model=model, cost=cost):
            models = dict(account.by_model)
            models[model] = models.get(model, Spent()).plus(usage, cost)
            return replace(
                account,
                spent=account.spent.plus(usage, cost),
                by_model=tuple(models.items()),
                last=usage,
                calls=account.calls + len(message.calls),
            )
        case Said(client_key=key) if key:
            keys = (*account.client_keys[1 - _KEYS_REMEMBERED :], key)
            return replace(account, client_keys=keys)
        case _:
            return account
