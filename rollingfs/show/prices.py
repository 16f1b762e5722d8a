"""List prices of stores, and what fewer objects and colder bytes save by them. Pure."""

from __future__ import annotations

from rollingfs.runtime.values import value_class

GB = 2**30
"""Bytes of a GB on a bill of AWS."""
EXPRESS_SUFFIX = "--x-s3"
"""The end of the name of each bucket of S3 Express One Zone."""


@value_class
class Prices:
    """List prices of a store, in US dollars."""

    name: str
    storage_gb_month: float
    write_1000: float
    """1,000 PUT, COPY, POST or LIST requests."""
    read_1000: float
    """1,000 GET and other requests."""
    upload_gb: float = 0.0
    """Each GB that is sent."""


PRICES_AT = "2026-11"
"""When the prices were looked up; all for us-east-1."""
S3_STANDARD = Prices("S3 Standard", 0.023, 0.005, 0.0004)
"""https://aws.amazon.com/s3/pricing/, the first 50 TB."""
S3_EXPRESS = Prices("S3 Express One Zone", 0.11, 0.00113, 0.00003, 0.0032)
"""The example in https://aws.amazon.com/s3/faqs/."""


def prices_of(protocol: str, path: str) -> Prices | None:
    """Return the prices of the store of a path; None if its requests are free, or the prices are unknown."""
    if protocol not in ("s3", "s3a"):
        return None
    return S3_EXPRESS if path.lstrip("/").partition("/")[0].endswith(EXPRESS_SUFFIX) else S3_STANDARD


def reads_text(requests: int, prices: Prices | None) -> str:
    """Return the price of saved requests, as ``, $1.20 for 1,000 of them``."""
    return "" if prices is None else f" ({dollars(requests * prices.read_1000)} for 1,000 such reads on {prices.name})"


def storage_text(cold_bytes: int, prices: Prices | None) -> str:
    """Return the savings of a month of cold bytes, or "".

    Only a hot store that is dearer than S3 Standard has savings.
    """
    if prices is None or prices.storage_gb_month <= S3_STANDARD.storage_gb_month:
        return ""
    saved = cold_bytes / GB * (prices.storage_gb_month - S3_STANDARD.storage_gb_month)
    return f" ({dollars(saved)} a month, if the tier is {S3_STANDARD.name})"


def dollars(amount: float) -> str:
    """Return an amount as people read it: small amounts with three digits."""
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:.2f}" if amount >= 1 else f"${amount:.3g}"
