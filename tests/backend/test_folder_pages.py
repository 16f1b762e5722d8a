"""Whether a folder exists, page by page: the answer is the same wherever the pages end."""

from hypothesis import example, given, strategies as st

from rollingfs.backend.contract import Backend, Listing
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs.create import create
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import limit, private_memory
from tests.support.segment_verbs import append

FOLDER = "/folder"
ALIVE = ("plain", "live", "replaced")
DEAD = ("tombstone", "shadowed", "orphans", "ledger")
FILES = ("log", "log ", "log!", "log#", "log$", "log$a", "log$i", "log-b", "logs")
"""Names of which some sort between a file and its header: "log", "log#", "log$chunks", "log$header"."""


class Paged(BackendWrapper):
    """An object store that lists so many keys at once."""

    def __init__(self, inner: Backend, keys_max: int) -> None:
        super().__init__(inner)
        limit(self, has_folders=False)
        self.keys_max = keys_max

    async def list_page(self, folder: str, place: str | None = None) -> Listing:
        entries = (await self.inner.list(folder)).entries
        in_order = sorted(entries, key=lambda entry: entry.path + "/" * entry.is_folder)
        start = int(place or 0)
        end = start + self.keys_max
        page = sorted(in_order[start:end], key=lambda entry: entry.path)
        return Listing(tuple(page), next_place=str(end) if end < len(in_order) else None)


def _put(backend: MemoryBackend, path: str, state: str) -> None:
    """Put something at a path."""
    client = At.of(backend)
    if state in ("plain", "shadowed", "replaced"):
        drive(backend.write(path, [b"data"]))
    if state in ("live", "tombstone"):
        drive(create(client, path))
    if state == "ledger":
        drive(create(client, names.ledger_path(names.parent(path))))
    if state == "orphans":
        drive(backend.write(f"{names.chunks_folder(path)}/{names.new_chunk_name(0)}", [b"data"]))
    if state in ("tombstone", "shadowed", "replaced"):
        plain = backend.fs.store.get(path)
        if plain is not None:
            drive(append(client, path, b"more"))  # this adopts the file, so that the tombstone names it
        drive(delete(client, path))
        if state == "shadowed":  # as if the plain file could not be deleted
            backend.fs.store[path] = plain
        elif state == "replaced":
            drive(backend.write(path, [b"other"]))


@given(
    st.dictionaries(
        st.sampled_from([*FILES, *(f"sub/{file}" for file in FILES[:2])]), st.sampled_from([*ALIVE, *DEAD]), max_size=4
    ).filter(lambda contents: list(contents.values()).count("ledger") <= 1),
    st.integers(1, 4),
)
@example({"log": "shadowed", "log#": "tombstone"}, 1)
@example({"log": "shadowed", "log!": "tombstone", "logs": "plain"}, 2)
@example({"log": "shadowed", "sub/log": "live"}, 1)
@example({"sub/log": "ledger", "log": "orphans"}, 1)
def test_folder_exists_if_anything_lives_in_it_whatever_pages(contents: dict[str, str], keys_max: int) -> None:
    backend = private_memory()
    for name, state in contents.items():
        _put(backend, f"{FOLDER}/{name}", state)
    is_folder = drive(At.of(Paged(backend, keys_max)).contents.is_folder(FOLDER))
    assert is_folder == any(state in ALIVE for state in contents.values())
