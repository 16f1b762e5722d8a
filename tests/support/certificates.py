"""Certificates of servers on loopback, each its own CA."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

ADDRESS = "127.0.0.1"
DAYS = 2


def make_certificate(folder: Path) -> Path:
    """Make a certificate for `ADDRESS` only, which no client trusts by default; gives its path.

    The file is ``public.crt``; ``private.key`` lies beside it, as MinIO expects.
    """
    from cryptography import x509  # the bare package's tests run without
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a store of rollingfs' tests")])
    now, days = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=DAYS)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - days)
        .not_valid_after(now + days)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ADDRESS))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    public = folder / "public.crt"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "private.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public
