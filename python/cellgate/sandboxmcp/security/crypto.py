"""Signatures of artifacts: Ed25519 by a key of this process, or HMAC by a shared one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from functools import cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cellgate.sandboxmcp.core.models import Artifact


@cache
def _key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def _signed(artifact: Artifact) -> bytes:
    return f"cellgate artifact\0{artifact.sha256}\0{artifact.size_bytes}\0{artifact.name}".encode()


class ArtifactSigner:
    """`sha256` says what the content was; `signature` that this process has signed it."""

    @staticmethod
    def sign(name: str, data: bytes) -> Artifact:
        return ArtifactSigner.sign_artifact(Artifact.from_bytes(name, data))

    @staticmethod
    def sign_artifact(artifact: Artifact) -> Artifact:
        artifact.signature = _key().sign(_signed(artifact)).hex()
        return artifact

    @staticmethod
    def public_key() -> str:
        """In hexadecimal digits."""
        return _key().public_key().public_bytes_raw().hex()

    @staticmethod
    def verify(artifact: Artifact, expected_hash: str) -> bool:
        """Whether the content has this hash and the signature of this process."""
        try:
            _key().public_key().verify(bytes.fromhex(artifact.signature), _signed(artifact))
        except (InvalidSignature, ValueError):
            return False
        return artifact.verify(expected_hash)

    @staticmethod
    def hash_content(content: str) -> str:
        return hashlib.sha256(content.encode()).hexdigest()

    @staticmethod
    def sign_result_artifacts(artifacts: Iterable[Artifact]) -> dict[str, str]:
        """Names and hashes."""
        return {a.name: a.sha256 for a in artifacts}

    @staticmethod
    def sign_hmac(name: str, data: bytes, key: str | bytes) -> Artifact:
        artifact = Artifact.from_bytes(name, data)
        artifact.signature = _hmac(artifact, key)
        return artifact

    @staticmethod
    def verify_hmac(artifact: Artifact, key: str | bytes) -> bool:
        good = bool(artifact.content_b64) or artifact.size_bytes == 0
        return (
            good and artifact.verify(artifact.sha256) and hmac.compare_digest(artifact.signature, _hmac(artifact, key))
        )


def _hmac(artifact: Artifact, key: str | bytes) -> str:
    data = base64.b64decode(artifact.content_b64)
    return hmac.new(key.encode() if isinstance(key, str) else key, _signed(artifact) + data, hashlib.sha256).hexdigest()
