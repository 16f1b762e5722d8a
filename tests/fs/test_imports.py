"""What a filesystem imports before it does anything: a process that only reads or appends pays for nothing else."""

from pathlib import Path

from tests.support.cli import python

LOADED_MAX = 100
"""Modules of the library that a filesystem on memory loads. A module that most users need may raise it; first ask
whether the verbs that need it could import it at their first use."""


FEW = (
    *("backend.generic", "backend.local", "backend.objects.azure", "backend.objects.backend", "fs.read_file"),
    *(
        "fs.closing",
        "fs.write_file",
        "parquet",
        "show",
        "stream",
        "segment.verbs.concat",
        "segment.verbs.delete",
        "segment.read.ends",
    ),
)
"""What only some users need."""
BASIC = {
    f"rollingfs.segment.{name}"
    for name in ("files.adopt", "files.intakes", *(f"verbs.{verb}" for verb in ("append", "change", "create")))
}
"""Verbs that most users need."""
APPEND = "fs.create('/logs/a'); fs.append('/logs/a', b'x')"


def _loaded(action: str = "") -> list[str]:
    script = (
        "import sys; from rollingfs import RollingFileSystem; fs = RollingFileSystem('memory', probe_cache=False)\n"
        f"{action}\nprint(*(name for name in sys.modules if name.startswith('rollingfs')))"
    )
    return python(script).stdout.split()


def _below(loaded: list[str], *packages: str) -> list[str]:
    return [name for name in loaded if name.startswith(tuple(f"rollingfs.{package}" for package in packages))]


def test_new_filesystem_imports_few_modules() -> None:
    loaded = _loaded()
    assert _below(loaded, *FEW) == []
    assert set(_below(loaded, "segment.files.", "segment.verbs.")) <= BASIC
    assert len(loaded) <= LOADED_MAX


def test_an_append_and_a_read_import_no_other_verbs() -> None:
    loaded = _loaded(f"{APPEND}; assert fs.open('/logs/a').read() == fs.cat_file('/logs/a') == b'x'")
    assert set(_below(loaded, "segment.files.", "segment.verbs.")) <= BASIC
    assert not _below(loaded, "segment.verbs.concat", "stream")


def test_an_append_of_a_chunk_imports_nothing() -> None:
    """An import within a commit hangs the children that are forked meanwhile: 9 of 75 runs of `test_processes`."""
    assert _loaded(f"fs.create('/a'); fs.append('/a', bytes({1 << 20}))") == _loaded()


def test_disk_verbs_import_no_s3fs_and_start_no_thread(tmp_path: Path) -> None:
    _loaded(f"""import threading; fs = RollingFileSystem("file", sync=False); root = "{tmp_path}"
fs.pipe_file(root + "/a/x", b"xyz")
fs.copy(root + "/a/", root + "/b/", recursive=True)
fs.get(root + "/b", root + "/c", recursive=True)
fs.put(root + "/c", root + "/d", recursive=True)
assert fs.cat(root + "/d/*") == {{root + "/d/x": b"xyz"}}, fs.cat(root + "/d/*")
fs.rm([root + "/a", root + "/b"], recursive=True)
assert "s3fs" not in sys.modules
assert threading.active_count() == 1, threading.enumerate()""")
