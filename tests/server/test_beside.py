"""The server's verbs with a second writer beside them: at each call of the store, another client does something."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Backend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.server import make_app
from tests.server.conftest import Client
from tests.support.backends import Objects, Scripted, private_memory
from tests.support.examples import slowly
from tests.support.faults import hurry

HDFS = "/webhdfs/v1"
CALLS_MAX = 200
"""A verb that makes more calls of the store than this has no end."""


STORES: dict[str, Callable[[], Backend]] = {
    "memory": private_memory, "objects": Objects, "disk": lambda: LocalBackend(sync=False),
}  # fmt: skip


class World:
    """A server whose store lets another client in between two calls, and that client."""

    def __init__(self, store: Backend, root: str) -> None:
        self.root = root
        self.backend = Scripted(store, has_folders=store.capability.has_folders)
        self.client = Client(make_app(RollingFileSystem(backend=self.backend, skip_instance_cache=True), root))
        self.other = RollingFileSystem(backend=store, skip_instance_cache=True)
        self.said: Any = None
        """What the other client was told."""

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def write(self, files: Mapping[str, bytes]) -> None:
        """Make files, and folders, whose names end in a slash."""
        for name, data in files.items():
            if name.endswith("/"):
                assert self.ask("PUT", f"{HDFS}/{name[:-1]}?op=MKDIRS") == {"boolean": True}
            else:
                self.other.pipe_file(self.at(name), data)

    def ask(self, method: str, url: str, **given: Any) -> Any:
        """The answer of the server: its JSON, or the status of an error."""
        answer = self.client.request(method, f"http://localhost{url}", **given)
        if not answer.is_success:
            return answer.status_code
        return answer.json() if answer.content else None

    def beside(self, nth: int, call: Callable[[], Any]) -> None:
        """Let the other client make a call before the nth of the server."""

        def make() -> None:
            try:
                self.said = (call(),)
            except OSError as error:
                self.said = error

        self.backend.plan(skips=nth, before=make, path=lambda _: True)

    @property
    def is_done(self) -> bool:
        """Whether the other client's call took place."""
        return isinstance(self.said, tuple)

    def files(self) -> dict[str, bytes]:
        """All that the root holds."""
        found = self.other.find(self.root)
        return {path.removeprefix(self.at("")): self.other.cat_file(path) for path in found}


Case = tuple[dict[str, bytes], Callable[[World], Any], Callable[[World], Any], Callable[[World, Any], object]]


def rename(source: str, target: str, options: str = "") -> Callable[[World], Any]:
    query = f"op=RENAME&destination=/{target}" + (f"&renameoptions={options}" if options else "")
    return lambda world: world.ask("PUT", f"{HDFS}/{source}?{query}")


def removed(path: str) -> Callable[[World], Any]:
    return lambda world: world.ask("DELETE", f"{HDFS}/{path}?op=DELETE")


def rest_rename(source: str, target: str, **more: Any) -> Callable[[World], Any]:
    return lambda world: world.ask("POST", f"/v1/segments/{source}:rename", json={"to": target, **more})


def moved(source: str, target: str) -> Callable[[World], Any]:
    return lambda world: world.other.mv([world.at(source)], [world.at(target)], overwrite=False)


def appended(path: str) -> Callable[[World], Any]:
    return lambda world: world.other.append(world.at(path), b"+")


def deleted(path: str) -> Callable[[World], Any]:
    return lambda world: world.other.rm_file(world.at(path))


def made(path: str) -> Callable[[World], Any]:
    return lambda world: world.other.pipe_file(world.at(path), b"new", mode="create")


YES = ({"boolean": True}, None, {"path": "b"}, {"path": "d/b"})
"""Answers of a rename that took place."""


def is_one_of_both(world: World, answer: Any) -> None:
    """One of two that want a name got it, and what each had is there."""
    assert (answer in YES) != world.is_done, (answer, world.said)
    assert sorted(world.files().values()) == ([b"new", b"old"] if world.is_done or "c" in world.files() else [b"old"])


def is_moved_with_all(world: World, answer: Any) -> None:
    files = world.files()
    assert answer in YES
    assert files == {"b": b"old+" if world.is_done else b"old"}


def is_moved_once(world: World, answer: Any) -> None:
    assert (answer in YES) != world.is_done, (answer, world.said)
    assert world.files() == {"c" if world.is_done else "b": b"old"}


def is_not_mixed(world: World, answer: Any) -> None:
    """Who comes later is refused, or goes into the folder under its own name, as HDFS does."""
    first, second = "b/x" if answer in YES else "a/x", "b/y" if world.is_done else "c/y"
    into = {"b/a/x", "b/y"}
    assert set(world.files()) in ({first, second} - ({"b/x"} if second == "b/y" else set()), into), (answer, world.said)


def is_there_or_refused(world: World, answer: Any) -> None:
    """The file that another makes in the folder is there, in a folder that is."""
    assert world.is_done
    assert world.files() == {"d/x": b"new"}
    assert answer in ({"boolean": True}, 403)
    assert world.other.isdir(world.at("d"))


def concat(target: str, *sources: str) -> Callable[[World], Any]:
    query = f"op=CONCAT&sources={','.join(f'/{one}' for one in sources)}"
    return lambda world: world.ask("POST", f"{HDFS}/{target}?{query}")


def is_joined_with_all(world: World, answer: Any) -> None:
    assert answer is None
    assert world.files() == {"a": b"old1+" if world.is_done else b"old1"}


def is_refused_and_open(world: World, answer: Any) -> None:
    assert answer == 404
    assert world.is_done
    assert world.files() == {"a": b"old", "b": b"1+"}
    world.other.append(world.at("b"), b"!")


def is_joined_or_open(world: World, answer: Any) -> None:
    if answer is None:
        assert world.files() == {"a": b"old12"}
    else:
        assert answer in (404, 504), "a mark of a segment that is gone from a disk is unknown"
        assert (world.is_done, world.files()) == (True, {"a": b"old", "b": b"1"})
        world.other.append(world.at("b"), b"!")


CASES: dict[str, Case] = {
    "a rename, and an append to its source": (
        {"a": b"old"},
        rename("a", "b", "NONE"),
        appended("a"),
        is_moved_with_all,
    ),
    "a rename by REST, and an append": ({"a": b"old"}, rest_rename("a", "b"), appended("a"), is_moved_with_all),
    "two renames of one file": ({"a": b"old"}, rename("a", "b"), moved("a", "c"), is_moved_once),
    "two renames to one name": ({"a": b"old", "c": b"new"}, rename("a", "b"), moved("c", "b"), is_one_of_both),
    "the same with options": ({"a": b"old", "c": b"new"}, rename("a", "b", "NONE"), moved("c", "b"), is_one_of_both),
    "a rename and a new file": ({"a": b"old"}, rename("a", "b", "NONE"), made("b"), is_one_of_both),
    "a rename by REST and a new file": ({"a": b"old"}, rest_rename("a", "b"), made("b"), is_one_of_both),
    "two renames of folders to one name": ({"a/x": b"1", "c/y": b"2"}, rename("a", "b"), moved("c", "b"), is_not_mixed),
    "a concat, and an append to a source": (
        {"a": b"old", "b": b"1"},
        concat("a", "b"),
        appended("b"),
        is_joined_with_all,
    ),
    "a concat that is refused, and an append to a source": (
        {"a": b"old", "b": b"1"},
        concat("a", "b", "none"),
        appended("b"),
        is_refused_and_open,
    ),
    "a concat, and a source that goes": (
        {"a": b"old", "b": b"1", "c": b"2"},
        concat("a", "b", "c"),
        deleted("c"),
        is_joined_or_open,
    ),
    "a removed folder, and a new file in it": ({"d/": b""}, removed("d"), made("d/x"), is_there_or_refused),
}


def told(store: str, case: Case, tmp_path: Any) -> Iterator[tuple[World, Any]]:
    """The worlds in which the other client came before the first call of the server, before the second, and so on."""
    files, ask, call, _ = case
    for nth in range(CALLS_MAX):
        world = World(STORES[store](), f"{tmp_path}/{nth}" if store == "disk" else "/root/files")
        world.write(files)
        world.beside(nth, lambda world=world: call(world))
        answer = ask(world)
        if world.said is None:
            return
        yield world, answer
    raise AssertionError("the verb has no end")


@pytest.mark.parametrize("store", ["memory", "objects", *slowly("disk")])
@pytest.mark.parametrize("name", CASES)
def test_no_byte_is_lost_or_doubled_beside_another_client(
    store: str, name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    worlds = [CASES[name][3](*one) for one in told(store, CASES[name], tmp_path)]
    assert len(worlds) > 3
