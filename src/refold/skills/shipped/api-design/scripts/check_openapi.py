"""Read an OpenAPI document and say what clients will trip over.

    python3 check_openapi.py openapi.yaml

A line `wrong` reports a broken rule of OpenAPI or HTTP, a line `note` something to decide.
The exit code is 0 if nothing is wrong. Reading YAML needs PyYAML, reading JSON does not.
"""

import argparse
import json
import re
import sys
from importlib.util import find_spec

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
VERBS = re.compile(
    r"(?i)^(get|create|update|delete|remove|add|set|fetch|list|make|do|pay|send|cancel)(?=[A-Z_-]|$)"
)
CASES = {
    "camelCase": re.compile(r"[a-z]+(?:[A-Z0-9][a-z0-9]*)+"),
    "snake_case": re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+"),
}

PAGE_PARAMETERS = {"limit", "cursor", "page", "pageSize", "page_size", "offset", "after"}


def main(arguments):
    """Print what is wrong and the notes. Return the exit code: 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    document = load(options.file)
    wrong = [
        *check_document(document),
        *check_references(document, document),
        *check_paths(document),
    ]
    notes = list(check_style(document))
    for each in wrong:
        sys.stdout.write(f"wrong: {each}\n")
    for each in notes:
        sys.stdout.write(f"note: {each}\n")
    count = sum(1 for _ in operations(document))
    sys.stdout.write(f"{count} operations, {len(wrong)} wrong, {len(notes)} notes\n")
    return 1 if wrong else 0


def load(path):
    """Return the object in a file; JSON is tried first, then YAML."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path} cannot be read: {error}")
    try:
        document = json.loads(text)
    except ValueError as no_json:
        if path.endswith(".json"):
            sys.exit(f"{path} is no JSON: {no_json}")
        document = from_yaml(text, path)
    if not isinstance(document, dict):
        sys.exit(f"{path} holds no object")
    return document


def from_yaml(text, path):
    """Return the content of a YAML text. `path` names the file in errors."""
    if find_spec("yaml") is None:
        sys.exit("check_openapi.py needs PyYAML for YAML: python3 -m pip install pyyaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        sys.exit(f"{path} is no YAML: {' '.join(str(error).split())}")


def check_document(document):
    """Report what is wrong with the document as a whole, and with its security."""
    version = str(document.get("openapi", ""))
    if not version.startswith("3."):
        yield f"openapi is {version or 'missing'}: write 3.1.0"
    info = document.get("info") or {}
    for key in ("title", "version"):
        if not info.get(key):
            yield f"info has no {key}"
    if not document.get("paths") and not document.get("webhooks"):
        yield "there are no paths"
    schemes = (document.get("components") or {}).get("securitySchemes") or {}
    secured = [document.get("security")]
    for _, _, _, operation in operations(document):
        secured.append(operation.get("security"))
    for name in sorted({n for listed in secured for each in listed or () for n in each}):
        if name not in schemes:
            yield f"security names {name!r}, which is not among securitySchemes"


def check_references(node, document, where="#"):
    """Report each `$ref` below `node` that has no target in the document."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if (
            isinstance(target, str)
            and target.startswith("#")
            and resolve(node, document) is None
        ):
            yield f"{where}: {target} is not there"
        for key, value in node.items():
            yield from check_references(value, document, f"{where}/{key}")
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield from check_references(value, document, f"{where}/{at}")


def resolve(node, document):
    """Return the node, or the target of its `$ref`; None if there is no target.

    Return {} for a target outside of the document.
    """
    for _ in range(20):
        if not isinstance(node, dict) or "$ref" not in node:
            return node
        target = str(node["$ref"])
        if not target.startswith("#"):
            return {}
        node = document
        for part in target.removeprefix("#/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
    return None


def operations(document):
    """Yield path, method, the entry of the path, and the operation, for each operation."""
    for path, item in (document.get("paths") or {}).items():
        for method in METHODS:
            if isinstance(item, dict) and isinstance(item.get(method), dict):
                yield path, method, item, item[method]


def check_paths(document):
    """Report what is wrong with the paths and with each operation below them."""
    ids, shapes = {}, {}
    for path in document.get("paths") or {}:
        if not path.startswith("/"):
            yield f"the path {path!r} does not begin with /"
        shape = re.sub(r"\{[^}]*\}", "{}", path)
        if shape in shapes:
            yield f"{path} and {shapes[shape]} are the same path"
        shapes[shape] = path
    for path, method, item, operation in operations(document):
        operation_name = f"{method.upper()} {path}"
        id_ = operation.get("operationId")
        if not id_:
            yield f"{operation_name} has no operationId"
        elif id_ in ids:
            yield f"{operation_name} has the operationId {id_!r} of {ids[id_]}"
        ids[id_] = operation_name
        yield from check_parameters(operation_name, path, (item, operation), document)
        yield from check_answers(operation_name, method, operation, document)


def check_parameters(operation_name, path, holders, document):
    """Report path parameters that do not match the path.

    `holders` are the entry of the path and the operation: both can have parameters.
    """
    listed = [
        resolve(p, document) or {} for h in holders for p in h.get("parameters") or ()
    ]
    declared = {p.get("name") for p in listed if p.get("in") == "path"}
    named = set(re.findall(r"\{([^}]*)\}", path))
    for name in sorted(named - declared):
        yield f"{operation_name}: the path parameter {name!r} is not declared"
    for name in sorted(map(str, declared - named)):
        yield f"{operation_name}: {name!r} is declared and not in the path"
    for parameter in listed:
        if parameter.get("in") == "path" and parameter.get("required") is not True:
            yield f"{operation_name}: the path parameter {parameter.get('name')!r} must be required"


def check_answers(operation_name, method, operation, document):
    """Report what is wrong with the responses and the request body of an operation."""
    answers = operation.get("responses") or {}
    codes = [str(code) for code in answers]
    if not any(code[:1] in "23" for code in codes):
        yield f"{operation_name} has no answer for when it works"
    if not any(code[:1] == "4" or code in ("default", "4XX") for code in codes):
        yield f"{operation_name} says nothing of errors (4xx)"
    for code, answer in answers.items():
        response = resolve(answer, document) or {}
        if not response.get("description"):
            yield f"{operation_name}: the answer {code} has no description"
        if str(code) == "204" and response.get("content"):
            yield f"{operation_name}: 204 has no content"
    if method in ("get", "head", "delete") and operation.get("requestBody"):
        yield f"{operation_name} has a body, which servers and proxies drop"
    if method in ("put", "patch") and not operation.get("requestBody"):
        yield f"{operation_name} has no requestBody"


def check_style(document):
    """Report what works, but should be written in another way."""
    for path in document.get("paths") or {}:
        parts = [part for part in path.split("/") if part and not part.startswith("{")]
        for part in parts:
            if VERBS.match(part):
                yield f"{path}: {part!r} is a verb; the method says what is done"
            if part != part.lower() or "_" in part:
                yield f"{path}: write {part!r} in lower case with hyphens"
        if path != "/" and path.endswith("/"):
            yield f"{path} ends with /"
    for path, method, item, operation in operations(document):
        operation_name = f"{method.upper()} {path}"
        if not operation.get("summary"):
            yield f"{operation_name} has no summary"
        if document.get("security") is None and operation.get("security") is None:
            yield f"{operation_name}: nothing says who may call it (security)"
        if method == "get":
            yield from check_lists(operation_name, item, operation, document)
    yield from check_names(document)


def check_lists(operation_name, item, operation, document):
    """Report each response whose list has no pages, or is not inside of an object."""
    listed = [*(item.get("parameters") or ()), *(operation.get("parameters") or ())]
    parameter_names = {(resolve(p, document) or {}).get("name") for p in listed}
    has_pages = not parameter_names.isdisjoint(PAGE_PARAMETERS)
    for code, answer in (operation.get("responses") or {}).items():
        if not str(code).startswith("2"):
            continue
        content = (resolve(answer, document) or {}).get("content") or {}
        json_content = content.get("application/json") or {}
        schema = resolve(json_content.get("schema") or {}, document) or {}
        if schema.get("type") == "array":
            yield f"{operation_name} answers with a bare array: nothing can be added to it"
        fields = [
            resolve(field, document) or {}
            for field in (schema.get("properties") or {}).values()
        ]
        has_list = any(field.get("type") == "array" for field in fields)
        is_of_one_thing = operation_name.endswith("}")
        if has_list and not is_of_one_thing and not has_pages:
            yield f"{operation_name} gives a list without pages (limit, cursor)"


def check_names(document):
    """Report if property names are written both in camelCase and in snake_case."""
    used = {case: set() for case in CASES}
    schemas = (document.get("components") or {}).get("schemas") or {}
    waiting = list(schemas.values())
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            for name in node.get("properties") or {}:
                for case, pattern in CASES.items():
                    if pattern.fullmatch(name):
                        used[case].add(name)
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    if all(used.values()):
        shown = ", ".join(sorted(min(names) for names in used.values()))
        yield f"properties are written in camelCase and in snake_case: {shown}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
