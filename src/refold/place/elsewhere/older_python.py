"""Rewrites a module of refold for Python 3.8, which many machines and containers have.

A place runs the same modules as this machine, which are written for a current Python. Only what
an older Python cannot load is rewritten: annotations are not evaluated, type aliases are
dropped, and four operations become calls of functions in `far/later_python.py`. `match` is not
rewritten; `tests/place/test_far_source.py` finds modules that contain it or do not load.
"""

import ast

from refold.values.python_syntax import parse_module

_LATER_MODULE = "refold.place.far.later_python"
_CONTAINER_CLASSES = frozenset(
    ("list", "dict", "set", "tuple", "frozenset", "deque", "SimpleQueue")
)
_ONLY_TYPES = frozenset(("TypeAlias", "Self", "Unpack", "assert_never"))
_LATER_METHODS = frozenset(("removeprefix", "removesuffix"))
_LATER_FUNCTIONS = {("functools", "cache"), ("itertools", "pairwise")}


def rewrite_module(source: str) -> str:
    """Return a module's source rewritten for Python 3.8, with the same behaviour."""
    tree = _Rewrite().visit(parse_module(source))
    imports = [
        ast.ImportFrom("__future__", [ast.alias("annotations")], 0),
        ast.Import([ast.alias(_LATER_MODULE, "_later")]),
    ]
    start = 1 if ast.get_docstring(tree) is not None else 0
    tree.body[start:start] = imports
    return ast.unparse(ast.fix_missing_locations(tree))


class _Rewrite(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Replace the value of a type alias by None. Other annotations are never evaluated."""
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
            # Another module may import the name, so it must exist.
            return ast.Assign([node.target], ast.Constant(None), lineno=node.lineno)
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt] | None:
        """Import newer functions from our own module, and leave out what only types need."""
        names, later_names = list[ast.alias](), list[ast.alias]()
        for name in node.names:
            if node.module == "typing" and name.name in _ONLY_TYPES:
                continue
            if (node.module, name.name) in _LATER_FUNCTIONS:
                later_names.append(name)
            else:
                names.append(name)
        statements = [
            ast.ImportFrom(module, aliases, 0)
            for module, aliases in ((node.module, names), (_LATER_MODULE, later_names))
            if aliases
        ]
        # Without any statement, the block around the import could be empty.
        return [*statements] or ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop zip's `strict` and the [types] of containers, and replace newer methods."""
        node.keywords = [word for word in node.keywords if not _is_strict_zip(node, word)]
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Subscript) and _is_container(function.value):
            node.func = function.value
        elif isinstance(function, ast.Attribute) and function.attr in _LATER_METHODS:
            return _call(function.attr, function.value, *node.args)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _call("union", node.left, node.right) if _is_union(node) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Replace `name |= value`, which older dictionaries do not know, by a call."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr) or not isinstance(node.target, ast.Name):
            return node
        value = _call("add_to", ast.Name(node.target.id, ast.Load()), node.value)
        return ast.Assign([node.target], value, lineno=node.lineno)

    def _visit_function(self, node: "ast.FunctionDef | ast.AsyncFunctionDef") -> ast.AST:
        """Rewrite a function, but not its return annotation, which is never evaluated."""
        returns = node.returns
        node.returns = None
        self.generic_visit(node)
        node.returns = returns
        return node


def _is_container(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in _CONTAINER_CLASSES


def _is_union(node: ast.BinOp) -> bool:
    """Whether `|` joins two types or dictionaries. With a constant, it joins numbers."""
    if not isinstance(node.op, ast.BitOr):
        return False
    return not any(isinstance(side, ast.Constant) for side in (node.left, node.right))


def _is_strict_zip(call: ast.Call, word: ast.keyword) -> bool:
    """Whether `word` is the argument `strict` of a call of `zip`, which is new in Python 3.10."""
    return (
        word.arg == "strict" and isinstance(call.func, ast.Name) and call.func.id == "zip"
    )


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name("_later", ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [])
