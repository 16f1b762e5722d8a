"""Packages import in one direction only; the picture of the layers is `docs/architecture.md`."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import rollingfs
from rollingfs import RollingFileSystem

ROLLINGFS = Path(__file__).parents[1] / "rollingfs"
PICTURE = (ROLLINGFS.parent / "docs" / "architecture.md").read_text().partition("```text\n")[2].partition("```")[0]
LAYERS = re.findall(r"(?:^|(?<=  ))(?<!^   )(\w+)/?(?=  )", PICTURE, re.MULTILINE)
"""From the ground up: each imports only what stands before it, and itself."""
ROOMS = ["segment", *re.findall(r"^   (\w+)/?(?=  )", PICTURE, re.MULTILINE)]
"""The rooms of `rollingfs.segment`, from the ground up."""
TOP_NAMES_MAX = 25
"""20, and four that users open: `show`, `server`, `ship`, `parquet` and `arrow` beside `spark`."""
ON_TOP = frozenset({"cli", "server", "ship", "spark", "testing", "logging.py", "demo.py"})
"""Programs on top of the faces: what they need beyond public verbs is `rollingfs.core`."""


@cache
def _graph() -> dict[str, set[str]]:
    """What each module imports of this project: at its top, lazily, or for types alone."""
    files = {path.relative_to(ROLLINGFS.parent).with_suffix("").as_posix(): path for path in ROLLINGFS.rglob("*.py")}
    modules = {name.removesuffix("/__init__").replace("/", "."): path for name, path in files.items()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                below = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                found |= below or {node.module}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        graph[module] = (found & modules.keys()) - {module, "rollingfs"}
    return graph


@pytest.mark.parametrize("layer", LAYERS)
def test_package_imports_only_what_stands_above_it_in_picture(layer: str) -> None:
    modules = {module: names for module, names in _graph().items() if module.split(".")[1:2] == [layer]}
    assert modules
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    wrong = {module: [name for name in names if name.split(".")[1] not in allowed] for module, names in modules.items()}
    assert {module: names for module, names in wrong.items() if names} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_segments_imports_only_higher_rooms(room: str) -> None:
    parts = {module: module.split(".") for module in _graph()}
    found = {
        (module, name)
        for module, names in _graph().items()
        for name in names
        if parts[module][1:3] == ["segment", room] and parts[name][1] == "segment"
    }
    assert {pair for pair in found if parts[pair[1]][2] not in ROOMS[: ROOMS.index(room) + 1]} == set()


BELOW_VERBS: dict[str, dict[str, str]] = {
    "arrow": {"segment.files.join_looks": "checks the schema of an append as a concat does"},
    "cli": {
        "backend.checkup": "`doctor` measures the store itself",
        "backend.local.disk": "`doctor` measures the disk itself",
        "backend.local.folders": "`doctor` measures the disk itself",
        "backend.local.record_lock": "`doctor` measures the disk itself",
        "backend.local.system": "`doctor` measures the disk itself",
        "backend.objects.clouds": "`config` lists the options of each kind of store",
        "segment.files.adopt": "a pipe to a plain file asks for its attributes before the first commit",
        "segment.files.intakes": "uploads standard input before the verb that commits it",
        "segment.write.ingest": "uploads standard input before the verb that commits it",
    },
    "parquet": {"segment.read.ends": "reads the footer that an append replaces, as a concat does"},
    "server": {
        "backend.local.looks": "a link must not lead out of the folder that is served",
        "segment.files.intakes": "uploads a body before the verb that commits it",
        "segment.read.revalidate": "reads a range by the header that was seen, while the newest is asked for",
    },
    "ship": {"segment.write.ingest": "a limit: the largest append that takes one request"},
    "show": {"segment.files.rewrite_plan": "pure: the next offload"},
    "spark": {
        "backend.contract": "a value: a file as the store lists it",
        "segment.at": "a type",
        "segment.files.rewrite_plan": "a value: the options of an offload",
        "segment.read.piece_checks": "keeps which chunks a task has verified",
    },
    "stream": {
        "backend.tiers": "refuses an unknown tier before a round",
        "segment.at": "a type, and the folders whose memory an append loads",
        "segment.commit.index_pages": "repeats a look whose pages are gone",
        "segment.files.rewrite_commits": "finds the next block of a growing segment",
        "segment.files.rewrite_plan": "pure: the next offload",
        "segment.read.ends": "whether old footers waste a part of a file",
        "segment.read.folder_contents": "lists the members of a stream",
        "segment.read.revalidate": "the errors of a read whose segment has changed",
        "segment.write.append_to_header": "pure: whether a tail is old",
    },
}
"""What programs on top, and the packages below them, import of the core other than verbs and `Segment`."""


@pytest.mark.parametrize("program", ["logging", "demo", *BELOW_VERBS])
def test_programs_on_top_import_verbs_of_the_core_alone(program: str) -> None:
    graph = {module: names for module, names in _graph().items() if module.split(".")[1:2] == [program]}
    found = {name.partition(".")[2] for names in graph.values() for name in names}
    below = {name for name in found if name.split(".")[0] in ("segment", "backend")} - {"segment.segment"}
    assert {name for name in below if not name.startswith("segment.verbs.")} == {*BELOW_VERBS.get(program, ())}


FACES = frozenset({"fs", "filesystem", "_fs"})
"""Names of variables that hold a filesystem."""
INSIDE = frozenset({"_client", "_bridge", "_backend", "_strip", "_core", "_at", "_binding", "_queries", "_verbs"})
"""Attributes of the faces; `rollingfs.core` is the way to what they hold."""


def _reached(tree: ast.AST) -> Iterator[str]:
    """The attributes with an underscore that a module takes from a face; the awaited forms of its verbs are public."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        owner = node.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        is_awaited = hasattr(RollingFileSystem, node.attr) and hasattr(RollingFileSystem, node.attr[1:])
        if (name in FACES and not is_awaited) or (node.attr in INSIDE and name not in ("self", "cls")):
            yield f"{ast.unparse(node)} in line {node.lineno}"


def test_only_the_faces_reach_into_the_faces() -> None:
    outside = [path for path in ROLLINGFS.rglob("*.py") if path.relative_to(ROLLINGFS).parts[0] in ON_TOP]
    found = {str(path.relative_to(ROLLINGFS)): sorted(_reached(ast.parse(path.read_text()))) for path in outside}
    assert len(found) > 40
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line", ["fs._client.headers", "self.fs._at('x')", "place.fs._get_more", "x = segment._binding"]
)
def test_a_reach_into_a_face_is_found(line: str) -> None:
    assert list(_reached(ast.parse(line)))
    assert not list(_reached(ast.parse("self._fs.open(path); core(fs).client; self._client.headers; cls._at")))


def test_every_name_at_top_has_its_place_in_picture() -> None:
    names = {path.stem for path in ROLLINGFS.iterdir() if path.name != "__pycache__"}
    assert names - {"__init__", "py"} == set(LAYERS)
    assert len(names) <= TOP_NAMES_MAX


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if (ROLLINGFS / layer).is_dir()])
def test_a_package_opens_with_its_contract(layer: str) -> None:
    text = ast.get_docstring(ast.parse((ROLLINGFS / layer / "__init__.py").read_text()))
    assert text
    if layer not in ("testing", "cli", "spark"):  # programs on top, which have pages of their own
        assert "Must not be here:" in text


def test_every_public_name_is_in_its_module() -> None:
    assert [name for name in rollingfs.__all__ if not hasattr(rollingfs, name)] == []


# -- circles -----------------------------------------------------------------------------------------------------


def test_no_circular_imports_exist_types_included() -> None:
    graph = _graph()
    assert len(graph) > 200
    TopologicalSorter(graph).prepare()  # a `CycleError` names the circle


def _bound(path: Path) -> Iterator[str]:
    """The names that a package's own code binds, or gives by `__getattr__`, other than by an import of its modules."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.For):
            inner = list(ast.walk(node))
            yield from (one.id for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
            if "lazy_loader.attach" in ast.unparse(node):
                yield from importlib.import_module(".".join(path.parent.relative_to(ROLLINGFS.parent).parts)).__all__
            elif any(isinstance(one, ast.Name) and one.id == "__all__" for one in inner):
                yield from (one.value for one in inner if isinstance(one, ast.Constant))


VERBS_OF_THEIR_MODULES = {"spark": {"configure", "maintain"}}
"""Public functions, each of which has the name of its module, and is all that others need of it."""


@pytest.mark.parametrize("package", list(ROLLINGFS.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_a_package_hides_no_module_of_its_own(package: Path) -> None:
    """`logging.config` and others find ``rollingfs.logging`` by the attributes of ``rollingfs`` first."""
    below = [*package.parent.glob("*.py"), *(path.parent for path in package.parent.glob("*/__init__.py"))]
    hidden = {path.stem for path in below} & set(_bound(package))
    assert hidden == VERBS_OF_THEIR_MODULES.get(package.parent.name, set())


# -- verbs -------------------------------------------------------------------------------------------------------

COMPOSED = {("append", "create"), ("erase", "collect"), ("erase", "truncate")}
"""An append may make its segment. An erase truncates first if the store is full, and its report shows what a collection
leaves."""


def test_a_verb_imports_no_other_verb() -> None:
    verbs = "rollingfs.segment.verbs."
    edges = {(verb, name) for verb, found in _graph().items() for name in found if verb.startswith(verbs)}
    found = {(verb.removeprefix(verbs), name.removeprefix(verbs)) for verb, name in edges if name.startswith(verbs)}
    assert found == COMPOSED
