"""What of two releases' rules differs: ``python tests/live/compare_wheels.py OLD.whl NEW.whl [--diff]``.

Reads both wheels' Python files without installing them, and compares the parts of ``rule_sources.py`` as code:
comments, docstrings and layout do not count. Exit code 1 where a part changed, and 2 where one is in neither wheel:
then the list is out of date.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rule_sources import SOURCES, Source


@dataclass(frozen=True)
class Part:
    """One function, class, constant or file in two releases."""

    source: Source
    name: str
    """Empty for the whole file."""
    old: str | None
    """Its code; None where it is not there."""
    new: str | None

    @property
    def verdict(self) -> str:
        """``same``, ``changed``, ``gone``, ``new`` or ``in neither``."""
        if self.old is None or self.new is None:
            return {(True, True): "in neither", (True, False): "new", (False, True): "gone"}[
                self.old is None, self.new is None
            ]
        return "same" if self.old == self.new else "changed"


def compare(old: Path, new: Path, sources: Sequence[Source]) -> list[Part]:
    """Every part of ``sources`` in both wheels."""
    with zipfile.ZipFile(old) as old_files, zipfile.ZipFile(new) as new_files:
        return [
            Part(source, name, _code(old_files, source.path, name), _code(new_files, source.path, name))
            for source in sources
            for name in source.names or ("",)
        ]


def _code(files: zipfile.ZipFile, path: str, name: str) -> str | None:
    """The code of a part without docstrings and comments; None where the wheel has it not."""
    if path not in files.namelist():
        return None
    module = ast.parse(files.read(path).decode("utf-8"))
    found: list[ast.AST] = [module] if not name else list(_named(module.body, name.split(".")))
    return "\n\n".join(ast.unparse(_without_docstrings(node)) for node in found) or None


def _named(body: Sequence[ast.stmt], path: Sequence[str]) -> Iterator[ast.AST]:
    """What a module or class body calls by a name; a part of a dictionary of lambdas counts as one too."""
    for node in body:
        if getattr(node, "name", None) == path[0]:
            if len(path) == 1:
                yield node
            else:
                yield from _named(getattr(node, "body", []), path[1:])
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and len(path) == 1:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == path[0] for target in targets):
                yield node
            elif isinstance(node.value, ast.Dict):  # as vLLM's environment variables are
                pairs = zip(node.value.keys, node.value.values, strict=True)
                yield from (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == path[0])
        elif isinstance(node, ast.If):
            yield from _named([*node.body, *node.orelse], path)


def _without_docstrings(node: ast.AST) -> ast.AST:
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                inner.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return node


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a part that is not the same, and how many are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--diff", action="store_true", help="show what changed, as code without comments")
    asked = parser.parse_args(arguments)
    server = asked.new.name.partition("-")[0]
    if server not in SOURCES:
        parser.error(f"no rules are read from {asked.new.name}. Expected a wheel of {' or '.join(SOURCES)}.")
    parts = compare(asked.old, asked.new, SOURCES[server])
    for part in parts:
        if part.verdict == "same":
            continue
        print(f"{part.verdict:<10} {part.source.path} {part.name or '(whole file)'}  -- {part.source.rule}")
        if asked.diff:
            old, new = ((code or "").splitlines() for code in (part.old, part.new))
            print("\n".join(difflib.unified_diff(old, new, "old", "new", lineterm="", n=2)))
    num_same = sum(part.verdict == "same" for part in parts)
    print(f"{num_same} of {len(parts)} parts are the same code")
    if any(part.verdict == "in neither" for part in parts):
        return 2
    return 0 if num_same == len(parts) else 1


if __name__ == "__main__":
    sys.exit(main())
