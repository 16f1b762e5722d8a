"""Every call of Hadoop over segments, plain files and folders: no segment changes, and a refusal names the command.

A refused call touches nothing: all files below the place have the same bytes before and after.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.delete import delete as delete_segment
from tests.support.spark import Place

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DATA = b"live " * 30


def sealed(place: Place, name: str) -> None:
    place.segment(name, DATA)
    place.run(seal(place.client, f"{place.path}/{name}"))


def merging(place: Place, name: str) -> None:
    sealed(place, name)  # its header has no records behind
    txn, target = "c0ffee00-0000-4000-8000-000000000001", "11111111-2222-4333-8444-555555555555"
    mark = f"state merging {txn} elsewhere {target} open 2026-11-20T10:00:00.000Z\n"
    place.rewrite(name, b"state sealed\n", mark.encode())


def unreadable(place: Place, name: str) -> None:
    place.segment(name, DATA)
    place.rewrite(name, b"start 0", b"start 1", sealed=False)


SEGMENTS: dict[str, tuple[Callable[[Place, str], object], str]] = {
    "open": (lambda place, name: place.segment(name, DATA), r"a segment \(open, 150 bytes\)"),
    "empty": (lambda place, name: place.segment(name, b""), r"a segment \(open, 0 bytes\)"),
    "sealed": (sealed, r"a segment \(sealed, 150 bytes\)"),
    "merging": (merging, r"a segment \(merging, 150 bytes\)"),
    "unreadable": (unreadable, ""),
}
"""For each: how it is made, and the words of the refusal for it; of an unreadable one, the refusal says the reason."""


def write(stream: Any) -> None:
    stream.write(b"new")
    stream.close()


def create(place: Place, name: str, overwrite: bool = True) -> None:
    write(place.fs.create(place.hadoop_path(name), overwrite))


def move(place: Place, name: str, target: str) -> bool:
    return bool(place.fs.rename(place.hadoop_path(name), place.hadoop_path(target)))


def replace(place: Place, name: str, target: str) -> None:
    """The general rename, of `FileContext`, which deletes its target first."""
    jvm = place.spark._jvm
    fs = jvm.org.apache.hadoop.fs
    how = place.spark.sparkContext._gateway.new_array(fs.Options.Rename, 1)
    how[0] = fs.Options.Rename.OVERWRITE
    conf = place.spark.sparkContext._jsc.hadoopConfiguration()
    context = fs.FileContext.getFileContext(place.hadoop_path().toUri(), conf)
    context.rename(place.hadoop_path(name), place.hadoop_path(target), how)


def delete(place: Place, name: str, recursive: bool) -> bool:
    return bool(place.fs.delete(place.hadoop_path(name), recursive))


OVER_SEGMENT: dict[str, tuple[Callable[[Place], object], str]] = {
    "create": (lambda place: create(place, "log", False), r"use `rollingfs rm \S+/log` first, or `rollingfs append"),
    "overwrite": (lambda place: create(place, "log"), r"use `rollingfs rm \S+/log` first, or `rollingfs append"),
    "append": (lambda place: write(place.fs.append(place.hadoop_path("log"))), r"use `rollingfs append \S+/log`"),
    "make folder": (lambda place: place.fs.mkdirs(place.hadoop_path("log")), r"use `rollingfs rm \S+/log` first"),
    "delete": (lambda place: delete(place, "log", False), r"use `rollingfs rm \S+/log`"),
    "delete recursively": (lambda place: delete(place, "log", True), r"use `rollingfs rm \S+/log`"),
    "rename": (lambda place: move(place, "log", "new"), r"use `rollingfs mv \S+/log \S+/new`"),
    "rename into a folder": (lambda place: move(place, "log", "in"), r"use `rollingfs mv \S+/log \S+/in/log`"),
    "rename onto it": (lambda place: move(place, "plain", "log"), r"use `rollingfs rm \S+/log` first"),
    "rename a folder onto it": (lambda place: move(place, "in", "log"), r"use `rollingfs rm \S+/log` first"),
    "replace by it": (lambda place: replace(place, "log", "plain"), r"use `rollingfs mv \S+/log \S+/plain`"),
    "replace it": (lambda place: replace(place, "plain", "log"), r"use `rollingfs rm \S+/log` first"),
}


def refused(place: Place, call: Callable[[Place], object], reason: str) -> None:
    before = place.tree()
    with pytest.raises(Exception, match=reason):
        call(place)
    assert place.tree() == before


@pytest.mark.parametrize("verb", OVER_SEGMENT)
@pytest.mark.parametrize("what", SEGMENTS)
def test_changes_of_a_segment_are_refused_untouched(place, what, verb):
    prepare, state = SEGMENTS[what]
    prepare(place, "log")
    place.plain("plain", b"plain")
    place.plain("in/plain", b"in")
    call, advice = OVER_SEGMENT[verb]
    said = rf"{re.escape(place.url)}/log is {state}; Hadoop reads segments .*nothing was changed: {advice}"
    refused(place, call, said if state else r"log\$header: the text does not have the checksum")
    if state:
        assert place.read("log") == place.content("log")


OVER_FOLDER: dict[str, tuple[Callable[[Place], object], str]] = {
    "delete recursively": (lambda place: delete(place, "in", True), r"use `rollingfs rm -r \S+/in`"),
    "rename": (lambda place: move(place, "in", "new"), r"use `rollingfs mv \S+/in \S+/new`"),
    "rename into a folder": (lambda place: move(place, "in", "out"), r"use `rollingfs mv \S+/in \S+/out/in`"),
    "replace by it": (lambda place: replace(place, "in", "empty"), r"use `rollingfs mv \S+/in \S+/empty`"),
}


@pytest.mark.parametrize("verb", OVER_FOLDER)
@pytest.mark.parametrize("what", [*SEGMENTS, "ledger"])
def test_changes_of_a_folder_with_segments_are_refused(place, what, verb):
    name = "in/deep/down/$stream" if what == "ledger" else "in/deep/down/log"
    SEGMENTS["open" if what == "ledger" else what][0](place, name)
    place.plain("in/plain", b"plain")
    place.plain("in/deep/plain", b"plain")
    place.plain("out/plain", b"out")
    assert place.fs.mkdirs(place.hadoop_path("empty"))
    call, advice = OVER_FOLDER[verb]
    url = re.escape(place.url)
    refused(place, call, rf"{url}/in is a folder that holds the segment {url}/in/deep/down/.*{advice}")


def test_refusal_counts_segments_and_quotes_for_the_shell(place):
    for name in ("a b/one", "a b/two", "a b/deep/three"):
        place.segment(name, DATA)
    refused(place, lambda place: delete(place, "a b", True), r"and 2 more; .*`rollingfs rm -r '\S+/a b'`")
    refused(place, lambda place: delete(place, "a b", False), "(?i)not empty|PathIsNotEmpty")


def test_append_to_plain_files_is_refused_with_the_command(place):
    place.plain("plain", b"plain")
    append = r"a plain file, to which only rollingfs can append, .*use `rollingfs append \S+/plain`"
    refused(place, lambda place: place.fs.append(place.hadoop_path("plain")), append)
    refused(place, lambda place: place.fs.append(place.hadoop_path("nothing")), "FileNotFound")


OVER_TOMBSTONE: dict[str, bytes | None] = {
    **dict.fromkeys(("create", "overwrite"), b"new"),
    **dict.fromkeys(("rename onto it", "replace it"), b"plain"),
    **dict.fromkeys(("delete", "delete recursively", "rename", "make folder")),
}
"""The calls of `OVER_SEGMENT` that succeed where a segment was deleted, and the plain file that there is then."""


@pytest.mark.parametrize("verb", OVER_TOMBSTONE)
def test_a_tombstone_counts_as_nothing_and_keeps_its_bytes(place, verb):
    place.segment("log", DATA)
    place.run(delete_segment(place.client, f"{place.path}/log"))
    place.plain("plain", b"plain")
    held = place.held()
    call, _ = OVER_SEGMENT[verb]
    assert call(place) is not True or verb in ("make folder", "rename onto it")
    assert place.held() == held
    if (expected := OVER_TOMBSTONE[verb]) is None:
        assert place.content("plain") == b"plain"
    else:
        assert place.content("log") == place.read("log") == expected


@pytest.mark.parametrize("name", ["log$header", "log$chunks", "log$chunks/lock", "$removed"])
def test_files_of_rollingfs_are_hidden_and_untouchable_by_name(place, name):
    place.segment("log", DATA * 10)
    place.plain("plain", b"plain")
    before, path = place.tree(), place.hadoop_path(name)
    for call in (
        lambda: create(place, name),
        lambda: move(place, "plain", name),
        lambda: move(place, name, "new"),
        lambda: place.fs.mkdirs(path),
        lambda: place.fs.append(path),
        lambda: place.fs.setTimes(path, 0, 0),
    ):
        with pytest.raises(Exception, match=r"reserved|No such"):
            call()
    assert not place.fs.exists(path)
    assert not place.fs.delete(path, True)
    found = {one.getPath().getName() for one in place.fs.globStatus(place.hadoop_path("*"))}
    assert (found, place.tree()) == ({"log", "plain"}, before)


def test_attributes_of_segment_are_not_set_and_say_nothing(disk):
    disk.segment("log", DATA)
    before, path = disk.tree(), disk.hadoop_path("log")
    status = disk.fs.getFileStatus(path)
    disk.fs.setTimes(path, 0, 0)
    disk.fs.setPermission(path, status.getPermission())
    assert disk.tree() == before
    assert disk.fs.getFileStatus(path).getModificationTime() == status.getModificationTime()
