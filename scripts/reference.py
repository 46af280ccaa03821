"""Write the generated parts of docs/ again, from the source they describe.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of
a page is written by people and stays unchanged. `tests/test_docs.py` fails while a page
differs from what this program would write.

Usage: python -m scripts.reference
"""

import ast
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import refold.tools
from refold.cli import man
from refold.cli.command_tree import Flag
from refold.commands.table import SlashCommand
from refold.tools.contract import Tool
from scripts import (
    library_reference,
    package_map,
    recorded_run,
    rest_reference,
    settings_tables,
    stream_reference,
)

DOCS = Path(__file__).parents[1] / "docs"
MANUAL = DOCS / "refold.1"  # goes into the wheel
BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def main() -> None:
    whole = {MANUAL: man.man_page()}
    whole |= {DOCS / "images/packages.svg": package_map.draw()}
    whole |= {DOCS / "schema" / name: text for name, text in schemas().items()}
    for page in sorted(DOCS.rglob("*.md")):
        whole[page] = replace_blocks(page.read_text(encoding="utf-8"))
    for file, text in whole.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(DOCS.parent)}")


def schemas() -> dict[str, str]:
    """Return the files of docs/schema, by name."""
    from refold.cli.schema import SCHEMA_NAMES, schema_text

    return {f"{name}.json": schema_text(name) for name in SCHEMA_NAMES}


def replace_blocks(page: str) -> str:
    return BLOCK.sub(lambda m: f"{m[1]}{BLOCKS[m[2]]()}\n{m[4]}", page)


def events() -> str:
    """Return every kind of event, in the order of the source, with its fields."""
    from refold.journal.events import child_events, codec, kinds, setting_events

    return "\n\n".join(
        structure(module, item)
        for module in (kinds, setting_events, child_events)
        for item in classes(module)
        if item.name in codec.KINDS_BY_NAME
    )


def parts() -> str:
    """Return the types of values in events: messages and their parts, results, usage."""
    from refold.values import claims, control, display, messages, usage

    modules = (messages, usage, display, control, claims)
    return "\n\n".join(
        structure(module, node)
        for module in modules
        for node in classes(module)
        if node.name != "StoredMessage"  # no event has one
    )


def tools() -> str:
    return "\n\n".join(tool(item) for item in all_tools())


def flags() -> str:
    """Return the flags of a session or a task, as `refold --help all` has them."""
    from refold.cli.command_tree import command_tree

    return flag_table(command_tree().flags)


def rlm_flags() -> str:
    """Return the flags of `refold rlm`."""
    from refold.cli.command_tree import command_tree

    (rlm,) = (
        command for command in command_tree().commands if command.name == "refold rlm"
    )
    return flag_table(rlm.flags)


def flag_table(flags: Iterable[Flag]) -> str:
    return "\n".join(["| flag | |", "|---|---|", *map(flag_row, flags)])


def flag_row(flag: Flag) -> str:
    """Return the row of one flag, with its value or the values to choose from."""
    value = flag.value
    *others, last = flag.names
    named = last if value is None or value.choices else f"{last} {value.called}"
    choices = f": {code(*value.choices)}" if value is not None and value.choices else ""
    names = code(*others, named).replace("|", "\\|")
    return f"| {names} | {flag.about}{choices} |"


def providers() -> str:
    """Return the built-in providers, and the environment variables that configure them."""
    from refold.provider import catalog

    rows = [
        f"| `{spec.name}` | {code(spec.key_env, spec.bearer_env)} | {code(spec.url_env)} "
        f"| {code(spec.base_url)} | {code(*spec.aliases)} |"
        for spec in catalog.providers()
    ]
    head = [
        "| provider | key variable | address variable | default address | other names |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def backends() -> str:
    """Return the built-in command lines, and why their own tools can do nothing."""
    from refold.provider.command.backends import builtin_specs

    rows = [
        f"| `{spec.name}/MODEL` | `{spec.argv[0]}` | {how_to(spec.install)} "
        f"| {spec.tools_off_by or 'not possible: [it runs in a sandbox](#a-program-with-tools-of-its-own)'} |"
        for spec in builtin_specs()
    ]
    head = [
        "| model | program | install | own tools switched off by |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def slash_commands() -> str:
    """Return what can be typed in a terminal, by groups, as /help has them."""
    from refold.commands.table import GROUP_TITLES, commands

    table = commands()
    parts = list[str]()
    for group, title in GROUP_TITLES.items():
        rows = [slash_command(command) for command in table if command.group == group]
        parts.append("\n".join([f"| {title} | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def slash_command(command: SlashCommand) -> str:
    usage = f"/{command.name} {command.takes}".strip().replace("|", "\\|")
    aliases = code(*(f"/{name}" for name in command.aliases))
    also = f" Also {aliases}." if aliases else ""
    waits = "" if command.at_once else " ·"  # it runs only after the turn
    more = f" {command.more}" if command.more else ""
    about = f"{command.about[0].upper()}{command.about[1:]}".rstrip(".?")
    end = "?" if command.about.endswith("?") else "."
    return f"| `{usage}`{waits} | {about}{end}{more}{also} |"


def how_to(text: str) -> str:
    """Return a command as code; a sentence ("get …") is returned as it is."""
    return text if text.startswith("get ") else code(text)


def code(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


def all_tools() -> list[Tool]:
    """Return every tool that a module of `refold.tools` defines, sorted by name."""
    by_name = dict[str, Tool]()
    for info in pkgutil.iter_modules(refold.tools.__path__):
        module = importlib.import_module(f"refold.tools.{info.name}")
        by_name |= {v.name: v for v in vars(module).values() if isinstance(v, Tool)}
    return [by_name[name] for name in sorted(by_name)]


def tool(tool: Tool) -> str:
    schema = msgspec.json.decode(tool.spec.parameters)
    needed = schema["required"]
    rows = [
        f"| `{name}` | {kind(about)} | {'required' if name in needed else default(about)} "
        f"| {about.get('description', '').replace(chr(10), ' ')} |"
        for name, about in schema["properties"].items()
    ]
    head = f"### `{tool.name}`\n\nEffect: `{tool.effect.value}`."
    if tool.subject:
        head += f" Rules match on `{tool.subject}`."
    table = "\n".join(
        ["| arguments | type | default | meaning |", "|---|---|---|---|", *rows]
    )
    return f"{head}\n\n{tool.description.strip()}\n\n{table if rows else 'No arguments.'}"


def kind(about: dict[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "anyOf" in about:
        return " or ".join(kind(item) for item in about["anyOf"])
    return about.get("type", "any")


def default(about: dict[str, Any]) -> str:
    if "default" not in about:
        return ""
    return f"`{msgspec.json.encode(about['default']).decode()}`"


def classes(module: types.ModuleType) -> Iterator[ast.ClassDef]:
    tree = ast.parse(inspect.getsource(module))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def structure(module: types.ModuleType, node: ast.ClassDef) -> str:
    lines = inspect.getsource(module).splitlines()
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    about = ast.get_docstring(node) or ""
    rows = [
        f"| `{ast.unparse(f.target)}` | {type_of(f)} | {value(f)} | {comment(lines, f)} |"
        for f in fields
    ]
    table = "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])
    pieces = [f"### {node.name}", about, table if rows else "No fields."]
    return "\n\n".join(piece for piece in pieces if piece)


def type_of(field: ast.AnnAssign) -> str:
    return f"`{ast.unparse(field.annotation)}`".replace("|", "\\|")


def value(field: ast.AnnAssign) -> str:
    return f"`{ast.unparse(field.value)}`" if field.value else "required"


def comment(lines: list[str], field: ast.AnnAssign) -> str:
    _, mark, text = lines[(field.end_lineno or 1) - 1].partition("  # ")
    return text.strip() if mark else ""


BLOCKS: dict[str, Callable[[], str]] = {
    "backends": backends,
    "events": events,
    "flags": flags,
    "library": library_reference.exports,
    "parts": parts,
    "providers": providers,
    "rest-addresses": rest_reference.addresses,
    "rest-types": rest_reference.types,
    "rlm-flags": rlm_flags,
    "run-events": recorded_run.events,
    "run-frames": recorded_run.frames,
    "run-packages": recorded_run.packages,
    "run-requests": recorded_run.requests,
    "settings": settings_tables.sections,
    "slash-commands": slash_commands,
    "stream-documents": stream_reference.event_documents,
    "stream-live": stream_reference.live,
    "stream-orders": stream_reference.orders,
    "stream-states": stream_reference.states,
    "tools": tools,
}


if __name__ == "__main__":
    main()
