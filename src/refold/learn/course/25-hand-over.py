"""Workers that share a queue of orders."""

import sqlite3

LEASE_SECONDS = 10
TABLE = """CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY, worker TEXT DEFAULT '', until REAL DEFAULT 0,
    epoch INTEGER DEFAULT 0, result TEXT DEFAULT '')"""


def take(db, worker, now):
    """Take an order for `worker`. Return its number and its epoch; None if there is none."""
    return db.execute(
        """UPDATE orders SET worker = ?, until = ?, epoch = epoch + 1 WHERE number = (
             SELECT number FROM orders WHERE result = '' AND until <= ? ORDER BY number LIMIT 1)
           RETURNING number, epoch""",
        (worker, now + LEASE_SECONDS, now),
    ).fetchone()


def finish(db, worker, number, epoch):
    """Record that `worker` has done an order. False if another worker has the order by now."""
    changed = db.execute(
        "UPDATE orders SET result = ? WHERE number = ? AND epoch = ? AND result = ''",
        (worker, number, epoch),
    )
    return changed.rowcount == 1


def main():
    db = sqlite3.connect("orders.db", isolation_level=None)
    if not db.execute("SELECT name FROM sqlite_master").fetchone():
        db.execute(TABLE)
        db.execute("INSERT INTO orders (number) VALUES (1), (2)")
    while True:
        try:
            now, worker, action, *values = input().split()
        except EOFError:
            break
        if action == "take":
            order = take(db, worker, float(now))
            print(
                f"{worker}: " + ("order {}, epoch {}".format(*order) if order else "none")
            )
        else:
            is_recorded = finish(db, worker, *map(int, values))
            print(f"{worker}: {'recorded' if is_recorded else 'fenced'}")
    for number, result in db.execute(
        "SELECT number, result FROM orders WHERE result != ''"
    ):
        print(f"order {number} was done by {result}")


main()
