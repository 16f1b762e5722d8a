"""Every module of the core has a test module of its name, or this table says which module tests it."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
CORE = TESTS.parent / "rollingfs"
PACKAGES = ("runtime", "format", "backend", "commit", "read", "write", "maintenance", "folders", "stream", "show", "fs")

ELSEWHERE = {
    "backend/contract": "backend/test_memory",
    "backend/local/backend": "backend/test_local",
    "backend/local/disk": "backend/test_local",
    "backend/local/held": "read/test_plain_files",
    "backend/local/looks": "backend/test_local",
    "backend/local/nofollow": "folders/test_links",
    "backend/local/upload": "backend/test_local",
    "backend/objects/azure/bucket": "backend/test_cloud",
    "backend/objects/azure/options": "backend/test_azure_options",
    "backend/objects/azure/plain": "backend/test_cloud",
    "backend/objects/azure/service": "backend/test_cloud",
    "backend/objects/backend": "backend/test_objects_contract",
    "backend/objects/bucket": "backend/test_objects_contract",
    "backend/objects/errors": "backend/test_cloud",
    "backend/objects/google/bucket": "backend/test_objects_contract",
    "backend/objects/google/requests": "backend/test_cloud_google",
    "backend/objects/google/service": "backend/test_cloud_google",
    "backend/objects/obstores/answers": "backend/test_s3_objects",
    "backend/objects/obstores/ending": "backend/test_s3_objects",
    "backend/objects/obstores/forks": "backend/test_s3_objects",
    "backend/objects/obstores/objects": "backend/test_s3_objects",
    "backend/objects/obstores/requests": "backend/test_s3_objects",
    "backend/objects/opening": "backend/test_cloud",
    "backend/objects/s3/botocore": "backend/test_s3_objects",
    "backend/objects/s3/bucket": "backend/test_s3",
    "backend/objects/s3/obstore": "backend/test_s3_objects",
    "backend/objects/s3/options": "backend/test_s3_options",
    "backend/objects/s3/parts": "backend/test_s3",
    "backend/objects/s3/service": "backend/test_s3",
    "backend/local/bell": "backend/test_record_lock",
    "backend/objects/schemes": "backend/test_cloud",
    "backend/objects/upload": "backend/test_objects_contract",
    "backend/patience": "system/test_patience",
    "backend/refusals": "backend/test_memory",
    "backend/values": "backend/test_memory",
    "client": "system/test_pravega",
    "commit/attempt": "commit/test_commits",
    "commit/chunk_files": "write/test_chunk_writer",
    "commit/drop_files": "maintenance/test_collect",
    "commit/index_pages": "system/test_scale",
    "commit/new_files": "write/test_grow",
    "commit/operation": "commit/test_lost_answers",
    "commit/recovery": "write/test_concat",
    "commit/shadowing": "system/test_shadowing",
    "commit/sharing/others": "commit/test_asks_simulated",
    "commit/sharing/outcome": "commit/test_sharing_share",
    "commit/store": "backend/test_probe",
    "commit/uploads": "write/test_gather",
    "write/segment_operations": "system/test_pravega",
    "errors": "system/test_messages",
    "format/parquet_footer": "spark/test_source_pure",
    "format/thrift": "spark/test_source_pure",
    "folders/folders": "fs/test_filesystem",
    "folders/info": "fs/test_filesystem",
    "folders/listing": "fs/test_filesystem",
    "backend/local/extending": "backend/test_local_in_place",
    "format/commit_lines": "format/test_asks",
    "format/crc": "maintenance/test_consolidate",
    "format/erasing": "maintenance/test_erase",
    "format/header": "format/test_codec",
    "format/index_codec": "format/test_bad_input",
    "format/invariants": "format/test_codec",
    "format/labels": "maintenance/test_rebuild_plan",
    "format/line_codec": "format/test_codec",
    "format/policies": "fs/test_policy_verbs",
    "format/merging": "format/test_transitions",
    "format/pin_codec": "format/test_header_fixtures",
    "format/plain_file": "format/test_codec",
    "format/sizes": "backend/test_s3_objects",
    "format/tokens": "format/test_codec",
    "fs/append_start": "fs/test_write_file",
    "fs/arguments": "system/test_messages",
    "fs/chunk_list": "fs/test_segment_handle",
    "fs/cloud_schemes": "backend/test_cloud",
    "fs/configured": "fs/test_target",
    "fs/export_target": "maintenance/test_export",
    "fs/export_verb": "maintenance/test_export",
    "fs/folder_operations": "fs/test_filesystem",
    "fs/observing": "show/test_telemetry",
    "fs/in_transaction": "fs/test_filesystem",
    "fs/opening": "fs/test_target",
    "fs/write_buffer": "fs/test_write_memory",
    "fs/binding": "fs/test_segment_handle",
    "fs/file_verbs": "fs/test_filesystem",
    "fs/queries": "fs/test_filesystem",
    "fs/read_buffer": "fs/test_read_file",
    "fs/reading": "fs/test_filesystem",
    "show/map_picture": "cli/test_commands",
    "show/notebook": "fs/test_faces",
    "fs/lent": "runtime/test_ending",
    "fs/progress": "fs/test_faces",
    "show/outlook_text": "cli/test_top",
    "show/prices": "cli/test_top",
    "show/readable": "cli/test_commands",
    "show/segment_map": "cli/test_commands",
    "fs/store_options": "fs/test_target",
    "fs/schemes": "fs/test_target",
    "fs/upkeep_verbs": "fs/test_tiers",
    "fs/stream_handle": "stream/test_stream_verbs",
    "maintenance/collected": "maintenance/test_collect",
    "maintenance/erased": "maintenance/test_erase",
    "maintenance/outlook": "stream/test_outlook",
    "maintenance/passing": "maintenance/test_export",
    "maintenance/pieces": "maintenance/test_export",
    "maintenance/rebuild_evidence": "maintenance/test_rebuild_plan",
    "maintenance/remains": "maintenance/test_erase",
    "maintenance/steps": "maintenance/test_consolidate",
    "maintenance/rewrite_all": "maintenance/test_rewrite",
    "maintenance/survey": "maintenance/test_references",
    "maintenance/swaps": "maintenance/test_consolidate",
    "maintenance/tier_failures": "stream/test_upkeep",
    "maintenance/tier_lines": "maintenance/test_offload",
    "maintenance/tier_survey": "maintenance/test_offload",
    "read/ranges": "read/test_piece_checks",
    "read/read_job": "read/test_piece_checks",
    "read/slicing": "fs/test_filesystem",
    "read/snapshot": "fs/test_read_file",
    "read/tuning": "fs/test_read_file",
    "runtime/clock": "system/test_clocks",
    "runtime/concurrency": "runtime/test_bridge",
    "runtime/logs": "commit/test_commits",
    "stream/cut_finder": "stream/test_cut",
    "stream/ledger": "stream/test_stream_verbs",
    "stream/members": "stream/test_stream_verbs",
    "stream/segment_upkeep": "stream/test_upkeep",
    "stream/trim": "stream/test_incarnations",
    "stream/upkept": "stream/test_upkeep",
    "write/group": "write/test_groups",
    "write/inherited": "fs/test_policy_verbs",
    "write/ingest": "write/test_chunk_writer",
}
"""The test module that tests a core module which has none of its name."""


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


def test_every_module_of_the_core_has_a_test_module_or_stands_in_the_table() -> None:
    missing = sorted(module for module in core_modules() if not has_its_own(module) and module not in ELSEWHERE)
    assert not missing, f"name the tests of {missing} after them, or say in ELSEWHERE where they are tested"


def test_the_table_names_modules_without_tests_of_their_own_and_tests_that_there_are() -> None:
    assert sorted(set(ELSEWHERE) - core_modules()) == [], "there is no such module any more"
    assert [module for module in ELSEWHERE if has_its_own(module)] == [], "it has a test module of its own"
    assert [module for module, test in ELSEWHERE.items() if not (TESTS / f"{test}.py").exists()] == []
