"""Every module of the core has a test module of its name, or tests import it, or this table says which tests it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

TESTS = Path(__file__).parent
CORE = TESTS.parent / "rollingfs"
PACKAGES = ("runtime", "format", "backend", "commit", "read", "write", "maintenance", "folders", "stream", "show", "fs")

ELSEWHERE = {
    "backend/local/nofollow": "folders/test_links",
    "backend/objects/azure/plain": "backend/test_cloud",
    "backend/objects/azure/backend": "backend/test_cloud",
    "backend/objects/bucket": "backend/test_objects_contract",
    "backend/objects/google/bucket": "backend/test_objects_contract",
    "backend/objects/obstores/ending": "backend/test_s3_objects",
    "backend/objects/obstores/forks": "backend/test_s3_objects",
    "backend/objects/s3/obstore": "backend/test_s3_objects",
    "backend/objects/schemes": "backend/test_cloud",
    "commit/drop_files": "maintenance/test_collect",
    "commit/operation": "commit/test_lost_answers",
    "commit/store": "backend/test_probe",
    "commit/uploads": "write/test_gather",
    "folders/info": "fs/test_filesystem",
    "fs/append_start": "fs/test_write_file",
    "fs/arguments": "system/test_messages",
    "fs/binding": "fs/test_segment_handle",
    "fs/cloud_schemes": "backend/test_cloud",
    "fs/folder_operations": "fs/test_filesystem",
    "fs/in_transaction": "fs/test_filesystem",
    "fs/lent": "runtime/test_ending",
    "fs/progress": "fs/test_faces",
    "fs/queries": "fs/test_filesystem",
    "fs/store_options": "fs/test_target",
    "maintenance/remains": "maintenance/test_erase",
    "maintenance/rewrite_all": "maintenance/test_rewrite",
    "maintenance/tier_failures": "stream/test_upkeep",
    "maintenance/tier_lines": "maintenance/test_offload",
    "maintenance/tier_survey": "maintenance/test_offload",
    "read/slicing": "fs/test_filesystem",
    "runtime/logs": "commit/test_commits",
    "show/map_picture": "cli/test_commands",
    "show/readable": "cli/test_commands",
    "stream/cut_finder": "stream/test_cut",
    "stream/members": "stream/test_stream_verbs",
    "write/grow": "write/test_chunk_writer",
    "write/segment_operations": "system/test_pravega",
}
"""The test module that tests a core module which has none of its name, and which no test imports."""


def core_modules() -> set[str]:
    files = [*CORE.glob("*.py"), *(file for package in PACKAGES for file in (CORE / package).rglob("*.py"))]
    return {
        file.relative_to(CORE).with_suffix("").as_posix() for file in files if file.stem not in ("__init__", "demo")
    }


def has_its_own(module: str) -> bool:
    """Whether ``backend/s3/get`` has a ``tests/backend/test_get.py`` or ``test_s3_get.py``."""
    *packages, name = module.split("/")
    folder = TESTS / packages[0] if packages else TESTS
    names = {f"test_{name}.py", "_".join(["test", *packages[1:], name]) + ".py"}
    return any((folder / name).exists() for name in names)


@functools.cache
def imported() -> set[str]:
    """The modules, and names in them, that test modules import."""
    trees = (ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in TESTS.rglob("test_*.py"))
    found = {
        name
        for tree in trees
        for node in tree
        if isinstance(node, ast.ImportFrom) and node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    }
    return {name.removeprefix("rollingfs.").replace(".", "/") for name in found}


def is_found(module: str) -> bool:
    return has_its_own(module) or module in imported()


def test_every_module_of_the_core_has_a_test_module_or_stands_in_the_table() -> None:
    missing = sorted(module for module in core_modules() if not is_found(module) and module not in ELSEWHERE)
    assert not missing, f"name the tests of {missing} after them, or say in ELSEWHERE where they are tested"


def test_the_table_names_modules_without_tests_of_their_own_and_tests_that_there_are() -> None:
    assert sorted(set(ELSEWHERE) - core_modules()) == [], "there is no such module any more"
    assert [module for module in ELSEWHERE if has_its_own(module)] == [], "it has a test module of its own"
    assert [module for module, test in ELSEWHERE.items() if not (TESTS / f"{test}.py").exists()] == []
