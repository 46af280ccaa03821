"""A log shares what it holds with those that were made from it, and shows only its own."""

from refold.values.growing import Log


def test_backwards_a_log_shows_what_it_holds_and_nothing_that_others_added() -> None:
    short = Log[int]((1, 2))
    long = short.plus(3)

    assert [*reversed(short)] == [2, 1]
    assert [*reversed(long)] == [3, 2, 1]
    assert [*reversed(Log[int]())] == []
