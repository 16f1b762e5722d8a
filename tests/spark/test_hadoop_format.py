"""The Java side reads the same headers, pages and bytes as the Python side; no Spark session is needed."""

import random
import re
import time
import zipfile
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.errors import CorruptHeaderError
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.header import Header
from rollingfs.format.tokens import seal_text
from rollingfs.policy import RollingPolicy
from tests.format.test_header_fixtures import FLAWED, FOLDER, RECORDED
from tests.support import spark as world, strategies
from tests.support.examples import MANY
from tests.support.life import World
from tests.support.mutants import KINDS, mutant

HEADERS_TRIED = 300

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    world.require_java()


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a program that parses files."""
    return world.java_command("format.Fuzz", tmp_path_factory.mktemp("classes"))


def takes(parser: list[str], files: Mapping[str, bytes], kind: str = "header") -> dict[str, bool]:
    return dict(zip(files, world.java_takes([*files.values()], [*parser, kind]), strict=True))


def test_java_accepts_good_fixtures_and_refuses_flawed_ones(parser):
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    for name in (f"{name}.header" for name in RECORDED):  # their records folded in
        files[name] = format_header(parse_header(files[name], name))
    pages = {name: data for name, data in files.items() if name.endswith(".page")}
    headers = {name: data for name, data in files.items() if name not in pages}
    assert takes(parser, pages, "page") == dict.fromkeys(pages, True)
    flawed = {f"{name}.flawed" for name in FLAWED}
    assert flawed < headers.keys()
    assert takes(parser, headers) == {name: name not in flawed for name in headers}


def test_java_refuses_a_page_that_two_spellings_name(parser):
    text, files = format_header(Header("7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 1)).partition(b"end crc32c=")[0], {}
    for folder in ("x", "another"):  # the parser takes each for the header of x
        named = ((0, "index-a"), (5, f"{folder}$chunks/index-a"))
        pages = [f"Page {at} 5 {file} crc32c=00000000 count=1 size=9\n" for at, file in named]
        files[folder] = seal_text(text + "".join(pages).encode())
    assert takes(parser, files) == {"x": False, "another": True}


def test_java_takes_whatever_header_python_writes(parser):
    files: dict[str, bytes] = {}

    @settings(max_examples=HEADERS_TRIED, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategies.headers())
    def collect(header: Header) -> None:
        files[f"{len(files)}.header"] = format_header(header)

    collect()
    assert takes(parser, files) == dict.fromkeys(files, True)


UNKNOWN = ("turn 5b2e9d0c1f4a4b6e8d7c3a2b1f0e9d8c", "asks 3", "origin", "later %zz  words")


def test_java_skips_unknown_lower_case_lines(parser):
    text, _, rest = (FOLDER / "tail.header").read_bytes().partition(b"end crc32c=")
    texts = {line: text + line.encode() + b"\n" for line in (*UNKNOWN, "offload tier=cold after_age_ms=5")}
    files = {line: seal_text(more)[:-1] + rest[9:] for line, more in texts.items()}
    assert takes(parser, files) == dict.fromkeys(files, True)


def test_java_reads_pythons_bytes_at_all_positions(tmp_path):
    segments, plain, classes = tmp_path / "segments", tmp_path / "plain", tmp_path / "classes"
    for folder in (segments, plain, classes):
        folder.mkdir()
    hot, cold = LocalBackend(sync=False), tmp_path / "cold"
    files = World(TieredBackend(hot, {"cold": TierStore(hot, str(cold))}), clock=time.time)
    data = bytes(index * 7 % 251 for index in range(40_000))
    made = {
        "empty": (b"", 0, RollingPolicy()),
        "tail": (data[:900], 0, RollingPolicy()),
        "chunks": (data, 0, RollingPolicy(10_000, inline_bytes=0)),
        "chunks and tail": (data, 12_345, RollingPolicy(999, inline_bytes=500)),
        "pages": (data[:20_000], 777, RollingPolicy(50, inline_bytes=30)),
    }
    made |= {f"{name} in a tier": made[name] for name in ("chunks and tail", "pages")}

    def make(path: str, content: bytes, start: int, policy: RollingPolicy) -> None:
        step = 45 if policy.max_bytes == 50 else 3000
        files.create(path, [content[at : at + step] for at in range(0, len(content), step)], policy)
        files.truncate(path, start)

    for name, (content, start, policy) in made.items():
        path = f"{segments}/{name}"
        make(path, content, start, policy)
        if name.endswith("in a tier"):
            assert files.offload(path, upto=len(content) // 2).chunks > 3
        (plain / name).write_bytes(content[start:])
    # parts of chunks and of pages, in folders whose names a header quotes
    sources = {f"{segments}/in \u00e9 %41/{name}": made[name] for name in ("chunks and tail", "pages")}
    for path, (content, start, policy) in sources.items():
        make(path, content, start, policy)
    files.concat(files.create(f"{segments}/joined"), [*sources])
    (plain / "joined").write_bytes(b"".join(content[start:] for content, start, _ in sources.values()))
    header = files.header(f"{segments}/pages")
    assert header.chunk_count > len(header.entries)
    assert world.run_java("Compare", str(segments), str(plain), f"file://{cold}", classes=classes) == "equal\n"
    with pytest.raises(AssertionError, match=r"tier 'cold' is not configured.*set fs.rolling.tier.cold.root"):
        world.run_java("Compare", str(segments), str(plain), classes=classes)


def test_jar_has_same_bytes_whenever_it_is_compiled(tmp_path):
    from rollingfs.spark import jar

    first, second = jar.build(tmp_path / "a.jar"), jar.build(tmp_path / "b.jar")
    assert first.read_bytes() == second.read_bytes()
    assert jar.is_current(first)
    with zipfile.ZipFile(first) as archive:
        assert "rollingfs/hadoop/RollingFileSystem.class" in archive.namelist()


def test_folder_kept_by_a_bare_header_moves_and_goes(tmp_path):
    tombstone = (FOLDER / "tombstone.header").read_bytes()
    kept = {"empty/$header": b"", "full/$header": b"", "full/a": b"bytes", "rest/$header": b"", "moved/$header": b""}
    dead = {"rest/gone$header": tombstone, "moved/gone$header": tombstone, "dead/gone$header": tombstone}
    for name, data in (kept | dead).items():
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_bytes(data)
    looks = [f"look {tmp_path}/f/{name}" for name in ("empty", "full", "rest", "dead", "empty/$header")]
    moves = [f"rename {tmp_path}/f/{name} {tmp_path}/f/to-{name}" for name in ("empty", "moved")]
    moves += [f"look {tmp_path}/f/{name}" for name in ("empty", "to-empty", "moved", "to-moved")]
    goes = [f"{verb} {tmp_path}/f/{name}" for name in ("to-empty", "rest") for verb in ("delete", "look")]
    found = world.run_java("Kept", *looks, *moves, *goes, f"look {tmp_path}/f", classes=tmp_path).splitlines()
    assert found[:5] == ["folder []", "folder [a]", "folder []", "nothing", "nothing"]
    assert found[5:11] == ["true", "true", "nothing", "folder []", "nothing", "folder []"]
    assert found[11:15] == ["true", "nothing", "true", "nothing"]
    left = {path.relative_to(tmp_path / "f").as_posix() for path in (tmp_path / "f").rglob("*$header")}
    assert left == {"full/$header", "to-moved/$header", "rest/gone$header", "moved/gone$header", "dead/gone$header"}


# -- mutants of headers and pages --------------------------------------------------------------------------------

MUTANTS = 100_000 if MANY else 20_000
"""As many at a time, which fit in memory."""
RUNS = 100 if MANY else 1
RUN_S_MAX, KIND_S_MAX = 1800, 3 * 3600
PYTHON_ONLY = re.compile(
    r"line \d+ \('(asks|ends|offload|origin|rewritten|root|turn)\b|the floor of asks|root or origin"
)
"""Lines that a reader need not know: Java does not parse them."""


def refusal(kind: str, data: bytes) -> str | None:
    """Why Python refuses a file; None if it takes the file."""
    try:
        KINDS[kind].parse(data) if kind == "page" else parse_header(data, "x")
    except CorruptHeaderError as error:
        return str(error)
    return None


@pytest.mark.fuzz
@pytest.mark.timeout(KIND_S_MAX)
@pytest.mark.parametrize("kind", ["header", "records", "page"])
def test_java_takes_and_refuses_the_mutants_that_python_does(parser, kind):
    chance = random.Random(kind)
    command = [*parser, "page" if kind == "page" else "header"]
    for _ in range(RUNS):
        compare(kind, [data for data in (mutant(KINDS[kind], chance) for _ in range(MUTANTS)) if data], command)


def compare(kind: str, files: list[bytes], command: list[str]) -> None:
    said = world.java_takes(files, command, RUN_S_MAX)
    assert {True, False} == set(said)
    for data, is_taken in zip(files, said, strict=True):
        reason = refusal(kind, data)
        if (reason is None) != is_taken:
            assert is_taken, f"Java refuses {data!r}, Python does not"
            assert reason is not None
            assert PYTHON_ONLY.search(reason), f"Java takes {data!r}; Python: {reason}"
