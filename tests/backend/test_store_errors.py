"""Errors about a store that lies name the store, what it did, what is true now, and what to do; `doctor` says the same.

Rules of the protocol: P14.3 to P14.15.
"""

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend import patience
from rollingfs.backend.checkup import NO, examine
from rollingfs.backend.contract import Blob
from rollingfs.errors import BadOffsetError, CorruptHeaderError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.segment.at import At
from rollingfs.testing import run
from tests.backend.test_probe import beside_writes, liar
from tests.support.backends import LOOKS, Scripted, private_memory, raises
from tests.support.careless import BareTagHandler, careless
from tests.support.proxy import serving
from tests.support.s3 import driven_s3
from tests.support.servers import new_bucket
from tests.support.site import Site

pytestmark = pytest.mark.usefixtures("nothing_known")
STORE, PRODUCT = "http://127.0.0.1:9000/bucket", "Liar/1.0"
STATE, REMEDY = (
    "nothing was written to any segment",
    "use a store, or a release of it, whose conditional writes are atomic",
)


def named(backend: Scripted) -> Any:
    """Give a store a name and a product, as S3 has them."""

    async def store_name(_: str) -> str:
        return STORE

    lying: Any = backend
    lying.store_name, lying.product, lying.may_tear = store_name, lambda _: PRODUCT, lambda _: True
    return lying


def racing(**plan: Any) -> Scripted:
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    backend.plan(**plan, times=None, probes=True)
    return backend


def old_bytes() -> Scripted:
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    beside_writes(backend, lambda old, new: Blob(old.data, new.token, new.modified))
    return backend


def no_conditions(verb: str) -> Scripted:
    return racing(verb=verb, before=raises(OSError(errno.EOPNOTSUPP, "the store answered 501 NotImplemented")))


PROBED: dict[str, tuple[Callable[[], Scripted], str]] = {
    "two winners of a create": (lambda: careless("create"), r"create let \d+ of \d+ concurrent writers win"),
    "two winners of a replace": (lambda: careless("replace"), r"replace let \d+ of \d+ concurrent writers win"),
    **{
        f"{lie}, {verb}": (lambda lie=lie, verb=verb: liar(lie, verb), f"{verb} with a condition .*{why}")  # type: ignore[misc]
        for lie, why in (("ignores its condition", "that does not hold"), ("says no and writes", " or writes where"))
        for verb in ("create", "replace")
    },
    "create with 501": (lambda: no_conditions("create"), "create with a condition is not implemented .*501"),
    "replace with 501": (lambda: no_conditions("replace"), "replace with a condition is not implemented .*501"),
    "an old body with a new token": (old_bytes, "read returned the bytes of an older file with the token of a newer"),
    "a wrong token": (
        lambda: racing(verb="create", answers=lambda token: f"not {token}"),
        "gave the token .* for a file whose token is|replace .* fails where the condition holds|have token",
    ),
}


@pytest.mark.parametrize(("store", "did"), PROBED.values(), ids=PROBED)
def test_a_refusal_names_store_and_deed(store, did):
    site = Site(named(store()), "m")
    with pytest.raises(UnsafeBackendError) as raised:
        site.create()
    text = str(raised.value)
    assert text.startswith(f"{site.path}: it is not safe to write to the store {STORE} ({PRODUCT}): "), text
    raised.match(did)
    assert STATE in text
    assert REMEDY in text
    assert site.backend.inner.fs.store == {}
    backend = named(store())
    found = run(backend, examine(backend, At.of(backend).runtime, ""))
    refusal = found.refusal
    assert not found.is_safe
    assert all(part in refusal for part in (f"{STORE} ({PRODUCT})", STATE, REMEDY)), refusal
    assert any(one.answer == NO and re.search(did, one.means) for one in found.findings), found


@dataclass
class Late:
    """A clock that a pause moves on."""

    now_s: float = 0.0

    async def sleep(self, _: float) -> None:
        self.now_s += 0.1


def test_torn_reads_name_the_store(monkeypatch):
    site, clock, numbers = Site(named(Scripted(private_memory())), "m"), Late(), iter(range(10**6))
    site.create()
    site.client.headers.forget()
    monkeypatch.setattr(site.client.runtime, "sleep", clock.sleep)
    monkeypatch.setattr(patience.time, "monotonic", lambda: clock.now_s)

    def torn(blob: Blob) -> Blob:
        return replace(blob, data=blob.data[:40], token=f"torn {next(numbers)}")

    site.backend.plan(LOOKS, names.header_path(site.path), answers=torn, times=None)
    with pytest.raises(CorruptHeaderError) as raised:
        site.run(site.client.headers.view(site.path, fresh=True))
    text = str(raised.value)
    assert all(part in text for part in (site.path, f"{STORE} ({PRODUCT})", "returned other bytes", "writes in place"))
    assert "this call wrote nothing; try again when" in text


def test_deletes_show_the_product_of_s3(moto):
    path = f"{new_bucket(moto)}/file"
    backend = driven_s3(moto)
    backend.delete([path])
    assert backend.product(path) == "amazon.com"  # moto's words


def test_a_server_that_compares_bare_etags_takes_appends(moto: dict[str, Any]) -> None:
    bucket = new_bucket(moto)
    with serving(moto["endpoint_url"], BareTagHandler) as proxy:
        options = {**moto, "endpoint_url": proxy.url}
        one, other = (RollingFileSystem("s3", options, skip_instance_cache=True) for _ in range(2))
        one.create(f"{bucket}/log")
        for fs in (one, other, one):
            fs.append(f"{bucket}/log", b"line\n")
        assert other.cat_file(f"{bucket}/log") == b"line\n" * 3
        with pytest.raises(BadOffsetError):
            one.append(f"{bucket}/log", b"line\n", expected_offset=5)
