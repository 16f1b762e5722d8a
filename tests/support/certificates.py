"""Certificates of servers on loopback, which nobody trusts unless told to."""

import datetime
import ipaddress
from pathlib import Path

ADDRESS = "127.0.0.1"
DAYS = 2


def make_certificate(folder: Path, *, is_own_ca: bool = False) -> Path:
    """Make a certificate for `ADDRESS` only; gives the file of the CA that signed it.

    The certificate is ``public.crt``; ``private.key`` lies beside it, as MinIO expects.

    Parameters
    ----------
    is_own_ca
        The certificate is the CA as well, as in many small installations.
    """
    from cryptography import x509  # the bare package's tests run without
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, days = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=DAYS)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a CA of rollingfs' tests")])

    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )

    def signed(name: x509.Name, key: ec.EllipticCurvePrivateKey, is_ca: bool, file: Path) -> None:
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ADDRESS))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - days)
            .not_valid_after(now + days)
            .add_extension(address, critical=False)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
            .add_extension(  # Python 3.13 and later refuse a CA without
                x509.KeyUsage(digital_signature=True, key_cert_sign=is_ca, crl_sign=is_ca, **usage), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    ca = folder / ("public.crt" if is_own_ca else "ca.crt")
    signed(ca_name, ca_key, True, ca)
    key = ca_key
    if not is_own_ca:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a store of rollingfs' tests")])
        signed(name, key, False, folder / "public.crt")
    (folder / "private.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return ca
