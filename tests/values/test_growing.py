"""A log shares what it holds with those that were made from it, and shows only its own."""

from refold.values.growing import Log


def test_reversed_log_shows_its_own_items_only() -> None:
    short = Log[int]((1, 2))
    long = short.plus(3)

    assert [*reversed(short)] == [2, 1]
    assert [*reversed(long)] == [3, 2, 1]
    assert [*reversed(Log[int]())] == []
