"""The bench of growth: what it computes, and that each of its operations runs."""

import pytest

from bench.growth import OPERATIONS, Growth, Operation, Run, measure_once, report, slope

SIZES = (10, 20, 40, 80, 160, 320)


@pytest.mark.parametrize(
    ("power", "expected"), [(0, 0.0), (1, 1.0), (2, 2.0)], ids=["fixed", "linear", "square"]
)
def test_the_growth_exponent_is_the_power_of_the_size(power: int, expected: float) -> None:
    assert slope(SIZES, [0.001 * size**power for size in SIZES]) == pytest.approx(expected)


def quadratic_operation(run: Run) -> object:
    """Compare each with each.

    Above 1.1: it is the
    square.
    """
    return run


def cubic_operation(run: Run) -> object:
    """Compare each with each."""
    return run


def test_only_a_reason_in_its_docstring_explains_a_large_growth_exponent() -> None:
    explained, unexplained = (
        Growth(Operation("words", item, 1, 1), SIZES, [size**2 for size in SIZES])  # type: ignore[arg-type]
        for item in (quadratic_operation, cubic_operation)
    )

    assert explained.operation.explanation == "it is the square."
    assert (explained.is_unexplained, unexplained.is_unexplained) == (False, True)


def test_the_growth_bench_has_an_operation_for_each_dimension() -> None:
    assert {operation.dimension for operation in OPERATIONS} == {
        "files", "events", "sessions", "connections", "tools", "subagents",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_each_operation_of_the_growth_bench_runs(operation: Operation) -> None:
    assert measure_once(operation, 2) > 0


def test_the_growth_report_has_the_sizes_and_the_exponent_of_an_operation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (growth,) = report(1, quick=True, only="encode tools")

    _, _, head, row = capsys.readouterr().out.split("\n")[:4]
    assert head.split()[:2] == ["sizes", "×1"]
    assert row.startswith("  tools: encode tools  10–320  ")
    assert f"{growth.exponent:.2f}" in row
    assert growth.sizes == [10, 20, 40, 80, 160, 320]
