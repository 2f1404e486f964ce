"""A certificate of this machine's loopback for tests, by an authority of its own."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Files:
    authority: Path
    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]

    def context(self) -> ssl.SSLContext:
        """Of a client."""
        return ssl.create_default_context(cafile=str(self.authority))

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """FOLDER/authority.pem is its certificate."""

    def __init__(self, folder: Path) -> None:
        self.file, self.key = folder / "authority.pem", ec.generate_private_key(ec.SECP256R1())
        public = self.key.public_key()
        builder = (
            self._builder("authority", public, -1, 10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        self.file.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, name: str, public: ec.EllipticCurvePublicKey, start: float, end: float
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .issuer_name(_name("authority"))
            .subject_name(_name(name))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=start))
            .not_valid_after(now + datetime.timedelta(days=end))
        )

    def issue(self, folder: Path, *names: x509.GeneralName, start: float = -1, end: float = 10) -> Files:
        """A certificate with these names, valid from @start to @end days from now: cert.pem and key.pem in @folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = (
            self._builder(str(names[0].value), key.public_key(), start, end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        files = Files(self.file, folder / "cert.pem", folder / "key.pem")
        files.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        files.key.touch(0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def make(folder: Path) -> Files:
    names = x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return Authority(folder).issue(folder, *names)
