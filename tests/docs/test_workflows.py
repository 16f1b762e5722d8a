"""The files for outsiders: workflows call what is in the repository, forms ask for what a maintainer needs."""

import re
from pathlib import Path

import pytest

from tests.support.servers import require_module

require_module("yaml")
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, str]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_scripts_and_actions_that_are_there(workflow: Path) -> None:
    for step in steps(workflow):
        if step.get("uses", "").startswith("./"):
            assert (ROOT / step["uses"] / "action.yml").is_file()
        for script in re.findall(r"\.ci/\w+", step.get("run", "")):
            assert (ROOT / script).stat().st_mode & 0o111, script


RUNS = {"ci": ".ci/run", "nightly": ".ci/nightly ${{ matrix.part }}", "release": ".ci/run"}


@pytest.mark.parametrize(("workflow", "command"), RUNS.items())
def test_a_workflow_runs_the_script_of_the_repository(workflow: str, command: str) -> None:
    assert command in [step.get("run") for step in steps(ROOT / ".github" / "workflows" / f"{workflow}.yml")]


def test_a_release_publishes_without_a_stored_token() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_pre_commit_runs_the_static_checks_of_ci() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    run = (ROOT / ".ci" / "run").read_text()
    for hook in hooks:
        assert hook["entry"].removesuffix(" --force-exclude") in run


def test_nightly_runs_every_part_of_its_script() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]["run"]
    (parts,) = re.findall(r"^PARTS=\((.*)\)$", (ROOT / ".ci" / "nightly").read_text(), re.MULTILINE)
    assert job["strategy"]["matrix"]["part"] == parts.split()
