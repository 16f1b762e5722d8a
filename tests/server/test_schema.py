"""The OpenAPI document holds: schemathesis makes requests of it, good and bad ones."""

from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.server import make_app
from tests.server.conftest import Client
from tests.support.examples import examples
from tests.support.servers import require_module

require_module("schemathesis")

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

CHECKS = [not_a_server_error, checks.status_code_conformance]
CHECKS += [checks.content_type_conformance, checks.response_schema_conformance]
ROOT = "/server-schema"

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


def app() -> Any:
    return make_app(RollingFileSystem("memory"), ROOT)


schema = schemathesis.openapi.from_asgi("/openapi.json", app())


@schema.parametrize()
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck), deadline=None)
def test_no_request_makes_the_server_fail(case: Any) -> None:
    Client(app()).post("/v1/segments/logs/a?create=true", content=b"one\ntwo\n")
    if case.path_parameters and len(str(case.path_parameters["path"])) % 2:
        case.path_parameters["path"] = "logs" if "streams" in case.operation.path else "logs/a"
    if case.operation.path.endswith(":tail"):
        case.query = {**(case.query or {}), "wait": 0}
    case.call_and_validate(app=app(), checks=CHECKS)
