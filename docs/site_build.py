"""What the documentation site needs beyond its plugins; see `mkdocs.yml`."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages beside `docs/`, where hosts of repositories look for them. The site has them under lower-case names."""
CALLBACK = "DEFAULT_CALLBACK"

_FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)
_SEVERAL = re.compile(r"^ *\w+Error(, \w+)+$", re.MULTILINE)
_NAME = re.compile(r"\b(?:\w+\.)?([A-Z]\w+)\b(?![\[\w])")
_MODULE = re.compile(r"\b(?:collections\.abc|typing|os|rollingfs(?:\.\w+)*)\.")
_TO_DOCS = re.compile(r"(?<=\]\()docs/")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages that lie beside `docs/`."""
    for name in BESIDE:
        text = _TO_DOCS.sub("", (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take from the head of a code block what the tests of the pages read there: no renderer knows it."""
    return _FENCE.sub(r"\1", markdown)


class Mended(griffe.Extension):
    """Mends what the import of a module tells griffe wrongly, or not at all."""

    def on_function_instance(self, *, node: Any, func: griffe.Function, **_: Any) -> None:
        """Show a type by what it is, where a module has a name of its own for it."""
        scope = getattr(inspect.unwrap(getattr(node, "obj", None) or _untuple), "__globals__", {})
        for parameter in func.parameters:
            parameter.annotation = _written_out(parameter.annotation, scope)
        func.returns = _written_out(func.returns, scope)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show the defaults that are objects as text: the templates ask them for attributes, and a callback has all."""
        for parameter in func.parameters:
            if parameter.default is not None and not isinstance(parameter.default, str | griffe.Expr):
                parameter.default = CALLBACK
        if func.docstring is not None and _SEVERAL.search(func.docstring.value):
            _untuple(func.docstring)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Take from constants the docstrings of their types."""
        for member in mod.members.values():
            if isinstance(member, griffe.Attribute):
                member.docstring = None

    def on_class_members(self, *, cls: griffe.Class, node: Any = None, **_: Any) -> None:
        """Give attributes the docstrings below them in the source, instead of those of their types; add the fields."""
        written = _fields(node.obj) if isinstance(getattr(node, "obj", None), type) else {}
        for name, member in list(cls.members.items()):
            if isinstance(member, griffe.Attribute) and "property" not in member.labels:
                member.docstring = None
                if name in written:
                    _describe(member, *written[name])
        for name in written.keys() - cls.members.keys():
            cls.set_member(name, griffe.Attribute(name))
            _describe(cls.members[name], *written[name])


def _written_out(annotation: Any, scope: Mapping[str, Any]) -> Any:
    """An annotation without the aliases of a module, and without what only the filesystem itself passes."""

    def meant(match: re.Match[str]) -> str:
        value = scope.get(match[1])
        return match[0] if value is not Any and get_origin(value) is None else _MODULE.sub("", str(value))

    text = str(annotation)
    plain = _NAME.sub(meant, text.replace(" | Intake", ""))
    return annotation if plain == text else plain


def _describe(attribute: Any, annotation: str, docstring: str) -> None:
    attribute.annotation = annotation
    if str(attribute.value).startswith("<"):  # of a class with slots: a descriptor
        attribute.value = None
    attribute.docstring = griffe.Docstring(docstring, parent=attribute)


def _untuple(docstring: griffe.Docstring) -> None:
    """Name several errors of one paragraph one after another; as a Python expression they are a tuple."""
    for section in docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.raises:
            for raised in section.value:
                if isinstance(raised.annotation, griffe.ExprTuple):
                    raised.annotation = str(raised.annotation).strip("()")


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _fields(cls: type) -> dict[str, tuple[str, str]]:
    """The annotations and docstrings of the public attributes that the source of a class writes."""
    try:
        tree = _tree(inspect.getfile(cls))
    except (OSError, TypeError):
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    body = found[0].body if found else []
    fields = {}
    for node, after in itertools.pairwise(body):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name), annotation=annotation),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                fields[name] = (ast.unparse(annotation), inspect.cleandoc(docstring))
    return {name: field for name, field in fields.items() if not name.startswith("_")}
