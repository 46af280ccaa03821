"""Checks lesson 25: workers share a queue, and one of them hangs."""

from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo(
    (),
    typed=("0 ann take", "5 bob take", "20 bob take", "21 ann done 1 1", "22 bob done 1 2"),
)


def check(workshop: Workshop) -> None:
    """Check two workers at the same time, one that is too late, and a second process."""
    first = workshop.run(
        typed=["0 ann take", "1 bob take", "2 eve take"]
    ).output.splitlines()
    expect(
        first[:1] == ["ann: order 1, epoch 1"],
        f"Ann should get 'order 1, epoch 1'. Printed: {quote(' / '.join(first))}.",
        "take returns the first order that no worker has: number 1, taken for the first time.",
        "epoch = epoch + 1 counts how often it was taken.",
        "UPDATE orders SET worker = ?, until = ?, epoch = epoch + 1 WHERE … RETURNING number, epoch",
    )
    expect(
        first[1:3] == ["bob: order 2, epoch 1", "eve: none"],
        f"Bob should get order 2, and nothing is left for Eve. Printed: {quote(' / '.join(first))}.",
        "Ann has order 1 until her lease is over.",
        "An order can be taken if its lease is over: until <= now.",
        "WHERE result = '' AND until <= ? ORDER BY number LIMIT 1",
    )
    second = workshop.run(
        typed=["11 eve take", "12 ann done 1 1", "13 eve done 1 2"]
    ).output.splitlines()
    expect(
        second[:1] == ["eve: order 1, epoch 2"],
        f"After ten seconds Eve should get 'order 1, epoch 2'. Printed: {quote(' / '.join(second))}.",
        "The lease of Ann ended at 10, and another process reads the same file.",
        "Write until when the worker has it: now + LEASE_SECONDS.",
        "(worker, now + LEASE_SECONDS, now)",
    )
    expect(
        second[1:3] == ["ann: fenced", "eve: recorded"],
        f"Ann is late and should be fenced; Eve's result counts. Printed: {quote(' / '.join(second))}.",
        "Ann has epoch 1, but the order was taken again since.",
        "finish changes a row only if its epoch is the one it was given.",
        "WHERE number = ? AND epoch = ? AND result = ''",
    )
    third = workshop.run(
        typed=["14 eve done 1 2", "40 ann take", "41 bob done 2 1"]
    ).output.splitlines()
    expect(
        third[:3] == ["eve: fenced", "ann: order 2, epoch 2", "bob: fenced"],
        f"A result counts once, and a done order is not taken again. Printed: {quote(' / '.join(third))}.",
        "Order 1 has a result. Order 2 was taken by Ann after Bob's lease.",
        "Both statements look for rows without a result.",
        "AND result = ''",
    )
