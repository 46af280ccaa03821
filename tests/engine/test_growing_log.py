from refold.values.growing import Log


def test_two_logs_extended_from_the_same_log_are_independent() -> None:
    start = Log("ab")

    one, other = start.plus("c"), start.plus("d")

    assert (start, one, other) == (Log("ab"), Log("abc"), Log("abd"))
    assert one[-1] == "c"
    assert one[:2] == ("a", "b")
