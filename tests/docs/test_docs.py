"""Every Python block of the README and of `docs/` runs, in order, page by page, and prints what it says it prints.

A line ``print(x)  # text`` promises that text. A block that cannot run says why, after its language:
```` ```python not-run: needs a bucket of yours ````.
"""

import ast
import contextlib
import importlib.util
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers import require, require_module

require_module("pandas")
require_module("pyarrow")

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md")))]
RUNS = "python"
OPTED_OUT = re.compile(r"python not-run: \S.{9,}")
OTHER_LANGUAGES = {"bash", "console", "ini", "json", "text", "toml", "yaml"}
PROMISE = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Of its first line of code, counted from 1."""
    info: str
    code: str


FENCED = re.compile(
    r"^ *(?P<fence>`{3,}|~{3,})(?P<info>.*)\n(?P<code>(?:.*\n)*?) *(?P=fence) *$|^ *(?:`{3,}|~{3,})", re.MULTILINE
)
"""A block from its first fence to the next that is the same, or a fence without one."""


def blocks(page: str, text: str) -> Iterator[Block]:
    """The fenced blocks of a page; fails if the last one is not closed."""
    for found in FENCED.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        assert found["fence"], f"{page}:{line}: the block is not closed"
        yield Block(page, line, found["info"].strip(), found["code"])


def problem(block: Block) -> str | None:
    """What is wrong with how a block declares itself."""
    if block.info == RUNS or block.info in OTHER_LANGUAGES or OPTED_OUT.fullmatch(block.info):
        return None
    what = "use 'python', 'python not-run: <why>' or 'text'"
    return f"{block.page}:{block.line}: a block declares {block.info!r}: {what}"


def run(page: list[Block]) -> None:
    """Run the Python blocks of a page in one namespace; check what they print."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in page:
        if block.info != RUNS:
            continue
        code = compile("\n" * (block.line - 1) + block.code, block.page, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        promised = PROMISE.findall(block.code)
        if promised:
            assert printed.getvalue().splitlines() == promised, f"{block.page}:{block.line} prints something else"


def missing(page: list[Block]) -> list[str]:
    """The packages that the blocks of a page import and that are not installed."""
    trees = [node for block in page if block.info == RUNS for node in ast.walk(ast.parse(block.code))]
    names = {alias.name for node in trees if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in trees if isinstance(node, ast.ImportFrom)}
    return sorted({name.partition(".")[0] for name in names if not importlib.util.find_spec(name.partition(".")[0])})


def page_blocks(page: str) -> list[Block]:
    return list(blocks(page, (ROOT / page).read_text(encoding="utf-8")))


def program_of(page: str, *names: str) -> str:
    """The blocks of a page that say that they are of these programs."""
    found = [block.code for name in names for block in page_blocks(page) if f"not-run: {name}," in block.info]
    assert found, f"{page} has no {names}"
    return "".join(found)


OTHERS_WARN = pytest.mark.filterwarnings("ignore")
"""Other projects' tools warn of what they use themselves."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=OTHERS_WARN) if "integrations" in page else page for page in PAGES]
)
def test_the_blocks_of_a_page_keep_their_promises(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = page_blocks(page)
    if absent := missing(found):
        require(f"{', '.join(absent)}: not installed")
    run(found)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_declares_what_it_is(page: str) -> None:
    assert [found for block in page_blocks(page) if (found := problem(block))] == []


def test_readme_and_tutorial_have_blocks_that_run_and_promise() -> None:
    for page in ("README.md", "docs/tutorial.md"):
        assert any(PROMISE.search(block.code) for block in page_blocks(page) if block.info == RUNS)


def test_a_wrong_promise_and_an_undeclared_block_are_found() -> None:
    with pytest.raises(AssertionError, match=r"p\.md:1 prints something else"):
        run([Block("p.md", 1, RUNS, "print(1 + 1)  # 3\n")])
    with pytest.raises(ZeroDivisionError):
        run([Block("p.md", 1, RUNS, "1 / 0\n")])
    for info in ("", "py", "python3", "python no-run", "python not-run:", "python not-run: why", "sh"):
        assert problem(Block("p.md", 1, info, "")) is not None
    assert problem(Block("p.md", 1, "python not-run: needs a bucket of yours", "")) is None
    with pytest.raises(AssertionError, match="not closed"):
        list(blocks("p.md", "```python\nx\n"))


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there"


LINES_MAX = {"README.md": 75, "docs/performance.md": 350, "docs/spark.md": 350}


@pytest.mark.parametrize("page", LINES_MAX)
def test_a_page_stays_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= LINES_MAX[page]


def test_the_readme_runs_twice_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run(page_blocks("README.md"))


def test_the_readme_has_the_commands_for_a_checkout() -> None:
    commands = [block.code for block in page_blocks("README.md") if block.info == "bash"]
    words = [shlex.split(line) for code in commands for line in code.splitlines()]
    assert any(".[demo]" in line and "rollingfs.demo" in line for line in words)
    assert any(".[s3,test,dev]" in line and "pytest" in line for line in words)
