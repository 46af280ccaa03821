// Files that programs generate, which are not what a user looks for. Pure.

const GENERATED = new Set(["__pycache__", "node_modules", ".venv", "venv", ".tox", ".nox", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".gradle", ".next", ".terraform"]); // names of folders

/** The folder of generated files that this file is in, or "". */
export const generatedFolder = (path) => path.split("/").slice(0, -1).find((name) => GENERATED.has(name)) ?? "";

/** The files with those that programs generated last. */
export const generatedLast = (files) => files.toSorted((a, b) => Number(Boolean(generatedFolder(a.path))) - Number(Boolean(generatedFolder(b.path))));
