"""The build hook of hatch: it puts the compiled jar into wheels and source distributions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _compiler() -> ModuleType:
    # by its path: the package is not installed yet
    spec = importlib.util.spec_from_file_location("rollingfs_jar", Path(__file__).with_name("jar.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class HadoopJarHook(BuildHookInterface[Any]):
    """Compiles the jar where there is a JDK; else it takes the jar of a source distribution, if it exists."""

    PLUGIN_NAME = "rollingfs-hadoop-jar"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jar to the files that hatch packs."""
        if version == "editable":
            return  # a checkout compiles the jar when it is first used
        compiler = _compiler()
        try:
            compiler.ensure()
        except compiler.CannotCompileError as error:
            self.app.display_warning(
                f"rollingfs is built without its jar for Spark and Hadoop (rolling+s3://, rolling+file://): {error}"
            )
            return
        build_data["artifacts"].append(f"/{compiler.JAR.relative_to(self.root).as_posix()}")
