"""Checks lesson 32: a tool maps the code in a folder."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_BASKET_TEXT = '''"""What a customer wants."""

from shop.prices import price_of


class Basket:
    def __init__(self):
        self.items = []

    def total(self):
        return sum(price_of(item) for item in self.items)


def describe(basket):
    return f"{len(basket.items)} items"
'''
_PRICES_TEXT = '''"""What things cost."""

PRICES = {"tea": 300}


def price_of(item):
    if item not in PRICES:
        raise KeyError(item)
    return PRICES[item]


def raise_all(percent):
    for item in PRICES:
        PRICES[item] += PRICES[item] * percent // 100
'''
_MAIN_TEXT = """from shop.basket import Basket
from shop.prices import price_of


def main():
    basket = Basket()
    basket.items.append("tea")
    print(price_of("tea"), basket.total())
"""
_SHOP_FILES = {
    "basket.py": _BASKET_TEXT,
    "prices.py": _PRICES_TEXT,
    "main.py": _MAIN_TEXT,
}
_LESSON_REPLIES = (
    call("code_map"),
    call("read_file", path="shop/prices.py", first=6, count=4),
    ModelReply("price_of raises KeyError for what is not sold."),
)
LESSON_DEMO = Demo(
    _LESSON_REPLIES,
    words=("What", "if", "something", "is", "not", "sold?"),
    files={f"shop/{name}": text for name, text in _SHOP_FILES.items()},
)


def check(workshop: Workshop) -> None:
    """Check the lines, the order and the length of the map, and a file with a syntax error."""
    for name, text in _SHOP_FILES.items():
        workshop.write(f"shop/{name}", text)
    run = workshop.run(*_LESSON_REPLIES, words=["Why?"])
    rows = str(run.messages(1)[-1].get("content")).splitlines()
    expect(
        any(row.startswith("shop/prices.py:6-9 price_of") for row in rows),
        f"price_of is in the lines 6 to 9 of shop/prices.py. The model read {quote(str(rows))}.",
        "A definition ends with its last line.",
        "ast has the number of the last line of each node.",
        "yield node.name, node.lineno, node.end_lineno",
    )
    expect(
        any(row.startswith("shop/basket.py:10-11 Basket.total") for row in rows),
        f"The method total of the class Basket is missing: 'Basket.total'. The model read {quote(str(rows))}.",
        "definitions looks at the top of a file only. A class has a body, too.",
        "Write a function that calls itself with the nodes inside of a node, and the name so far.",
        'yield from nested(node, f"{before}{node.name}.")',
    )
    expect(
        rows[0].endswith(" price_of") and "Basket" in rows[1] + rows[2],
        "price_of is mentioned in two other files, so it comes first, and Basket and its total next. "
        f"The model read {quote(str(rows))}.",
        "Count in how many other files each name occurs, as a whole word.",
        "Of Basket.total, the word is total. Sort by the count, the greatest first.",
        "rows.sort(key=lambda row: -row[0])  # rows has pairs: the count and the text",
    )
    expect(
        len(rows) == 6 and not any("raise_all" in row for row in rows),
        f"Only the first {6} rows should be sent, but the model read {len(rows)}: {quote(str(rows))}.",
        "A map that is as long as the code is of no use.",
        "Cut the list after it was sorted.",
        "rows[:MAX_ROWS]",
    )
    workshop.write("shop/new.py", "def half(:\n")
    run = workshop.run(*_LESSON_REPLIES, words=["Why?"])
    text = str(run.messages(1)[-1].get("content"))
    expect(
        "shop/new.py:1 is not Python" in text and "price_of" in text,
        f"shop/new.py cannot be parsed: the map should say so, and have the other files. The model read {quote(text)}.",
        "While code is changed, a file is often not valid for a moment. Its row must not be cut off.",
        "ast.parse raises SyntaxError, which has the line in `lineno`. Collect these rows in a list of their own.",
        'except SyntaxError as error:\n    broken.append(f"{path}:{error.lineno} is not Python")\n…\nreturn "\\n".join(rows[:MAX_ROWS] + broken)',
    )
