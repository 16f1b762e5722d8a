"""The commands of docs/server.md behind a prompt run, in order, and answer as the page says; … stands for anything."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.docs.test_docs import page_blocks
from tests.server.conftest import OPERATIONS_OF_DOCS, serving
from tests.support.servers import require

WHERE = "http://localhost:9870"


def commands() -> list[tuple[str, list[str]]]:
    """Each command behind a prompt, and the lines of its answer."""
    text = "".join(block.code for block in page_blocks("docs/server.md") if block.info == "console")
    parts = [part.splitlines() for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [(command, answer) for command, *answer in parts]


def test_the_commands_of_the_page_answer_as_it_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        require("curl: not installed")
    with serving(f"{tmp_path}/store") as server:
        for command, expected in commands():
            run = ["bash", "-c", command.replace(WHERE, server.url.replace("127.0.0.1", "localhost"))]
            said = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
            wanted = "\n".join(expected)
            pattern = ".*".join(map(re.escape, wanted.split("…")))
            assert re.fullmatch(pattern, said.rstrip("\n"), re.DOTALL), f"{command}\n{said}"


def test_each_operation_is_on_the_page() -> None:
    text = "\n".join(command for command, _ in commands())
    missing = {one for one in OPERATIONS_OF_DOCS if not re.search(one, text)}
    assert not missing, "docs/server.md shows no command that sends these"
