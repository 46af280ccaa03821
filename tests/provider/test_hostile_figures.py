"""What a provider says it used is never credit, and a small answer is never a large one."""

from hypothesis import given
from hypothesis import strategies as st

from refold.values.usage import Usage

COUNTS = st.integers(-(10**30), 10**30)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_usage_lowers_a_sum(a: int, b: int, c: int, d: int, e: int) -> None:
    before = Usage(1, 2, 3, 4, 5)

    after = before + Usage(a, b, c, d, e)

    assert all(
        getattr(after, name) >= getattr(before, name) for name in Usage.__struct_fields__
    )
