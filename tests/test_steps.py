"""Programs on top change the store by one verb of the core a step: they never look, act, and then undo."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROLLINGFS = Path(__file__).parents[1] / "rollingfs"
ON_TOP = ("cli", "server", "ship", "parquet", "spark", "logging.py", "demo.py")
TAKING = frozenset(
    {"rm", "rm_file", "delete", "delete_file", "rmdir", "remove_empty", "bury", "take_whole", "remove_whole"}
    | {"delete_if", "cp", "cp_file", "copy", "mv", "mv_file", "move", "rename"}
)
"""Verbs that take something away, or make a second one of it: each site has its row in `STEPS`."""
MOVING = frozenset({"mv", "mv_file", "move", "rename"})
COMMITTING = re.compile(r"^    (\w+), _\w+ = (?:methods\.\w+\()*\s*both\(.*\b(?:commits|takes)=", re.MULTILINE)
FACES = "".join((ROLLINGFS / "fs" / name).read_text() for name in ("filesystem.py", "segment_handle.py"))
CHANGING = (
    TAKING
    | {*COMMITTING.findall(FACES), "acquire"}
    | {"renew", "pipe", "mkdir", "makedirs", "retain", "trim", "collect", "put_file"}
)
"""The verbs of the faces that commit, and others."""
LOOKS = frozenset({"exists", "isfile", "isdir"})
"""Answers that are old when the next verb begins."""
COMMON = frozenset({"append", "copy", "delete", "create", "move", "rename", "roll", "concat"})
"""Names that other things have as well: lists, modules. They count as verbs of what `OWNERS` has, and as imports."""
OWNERS = frozenset({"fs", "_fs", "filesystem", "store", "folders", "backend", "handle"})

STEPS: dict[tuple[str, str], tuple[str, str]] = {
    ("cli/change.py", "mv"): ("mv", "one verb"),
    ("cli/change.py", "rm"): ("rm", "one verb"),
    ("cli/change.py", "truncate"): ("truncate truncate", "one of two, by an option"),
    ("cli/streams.py", "retain"): ("retain retain", "one of two, by an option"),
    ("server/segment_routes.py", "delete"): ("rm_file", "one verb"),
    ("server/segment_routes.py", "rename"): ("move", "one verb"),
    ("server/webhdfs.py", "_rename"): ("move rmdir", "an empty folder makes way for a folder"),
    ("server/webhdfs.py", "_delete"): ("delete remove_empty", "one of two: a file, or a folder without content"),
    ("logging.py", "_append"): ("append append create", "no undo: who meets a segment of another is content"),
    ("spark/source/sink/commits.py", "commit"): ("append overwrite", "one of two, by the mode"),
    ("spark/maintain.py", "_drop"): ("retain trim", "one of two, by an option"),
    ("spark/maintain.py", "_join"): ("concat seal", "what is sealed stays so, and is joined by the next run"),
    ("demo.py", "append_months"): ("append create seal", "nobody else writes"),
    ("demo.py", "join_months"): ("concat create", "nobody else writes"),
    ("demo.py", "drop_quarter"): ("collect truncate", "nobody else writes"),
    ("demo.py", "live_parquet"): ("collect create truncate", "nobody else writes"),
}
"""Functions that take something away, or make several steps: their verbs, and why that is no undo and no look."""


def _verbs(function: ast.AST, imported: dict[str, str]) -> Iterator[tuple[str, ast.Call]]:
    """The verbs of a store that a function calls, without those of functions in it."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        todo += ast.iter_child_nodes(node)
        if not isinstance(node, ast.Call):
            continue
        target = node.func
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        verb = name.lstrip("_")
        if isinstance(target, ast.Attribute):
            owner = ast.unparse(target.value).rpartition(".")[2]
            is_meant = verb not in COMMON or owner in OWNERS
        else:
            is_meant, verb = name in imported, imported.get(name, "")
        if is_meant and verb in CHANGING | LOOKS:
            yield verb, node


def _functions(source: str) -> Iterator[tuple[str, list[tuple[str, ast.Call]]]]:
    """The functions of a module, and their verbs."""
    tree = ast.parse(source)
    ours = [
        one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and str(one.module).startswith("rollingfs")
    ]
    imported = {alias.asname or alias.name: alias.name for node in ours for alias in node.names}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield function.name, list(_verbs(function, imported))


def found_in(source: str) -> Iterator[tuple[str, str]]:
    """Functions that make several steps, or a step that needs a reason, and their verbs."""
    for name, calls in _functions(source):
        steps = sorted(verb for verb, _ in calls if verb in CHANGING)
        looks = sorted({verb for verb, _ in calls if verb in LOOKS}) if steps else []
        if looks or len(steps) > 1 or not TAKING.isdisjoint(steps):
            yield name, " ".join(looks + steps)


def replacing(source: str) -> Iterator[str]:
    """The functions with a move that does not say whether it replaces."""
    for name, calls in _functions(source):
        for verb, call in calls:
            if verb in MOVING and "overwrite" not in {one.arg for one in call.keywords}:
                yield name


def sources() -> dict[str, str]:
    paths = [path for top in ON_TOP for path in ([ROLLINGFS / top] if "." in top else (ROLLINGFS / top).rglob("*.py"))]
    return {path.relative_to(ROLLINGFS).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_program_on_top_changes_things_by_one_verb_step() -> None:
    found = {(module, name): verbs for module, text in sources().items() for name, verbs in found_in(text)}
    assert found == {place: verbs for place, (verbs, _) in STEPS.items()}


def test_no_program_on_top_replaces_by_default() -> None:
    assert [(module, name) for module, text in sources().items() for name in replacing(text)] == []


FAULTS = {
    "an undo deletes the target": (
        "cli/change.py",
        """
def concat(session, target, source, create):
    if is_new := create and not fs.exists(to):
        fs.create(to)
    try:
        offset = fs.concat(to, sources)
    except ValueError:
        if is_new:
            fs.rm(to)
        raise
""",
    ),
    "a rename copies and deletes": (
        "server/webhdfs.py",
        """
async def _rename(call):
    await call.fs._pipe_file(target, await call.fs._cat_file(call.at), mode="create")
    await call.fs._rm_file(call.at)
""",
    ),
    "an empty folder goes with all in it": (
        "server/webhdfs.py",
        """
async def _delete(call):
    if call.is_on("recursive") or not await call.store.listed(call.at):
        await call.fs._rm(call.at, recursive=True)
""",
    ),
    "a rename looks whether the name is free": (
        "server/segment_routes.py",
        """
async def rename(call, to, overwrite=False):
    if not overwrite and await call.store.fs._exists(target):
        raise FileExistsError
    await call.store.fs._mv_file(source, target)
""",
    ),
    "sources are sealed by a concat that is refused": (
        "server/segment_routes.py",
        """
async def concat(call):
    for source in sources:
        await call.fs._seal(source)
    await call.fs._concat(call.at, sources)
""",
    ),
}
"""Faults of programs on top that were there once."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_was_there_is_found(name: str) -> None:
    module, source = FAULTS[name]
    found = dict(found_in(source))
    assert found
    assert all(STEPS.get((module, function), ("",))[0] != verbs for function, verbs in found.items())
    assert list(replacing(source)) == (["rename"] if "_mv_file" in source else [])
