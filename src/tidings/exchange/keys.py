"""Ed25519 signatures of entries, and proofs that a node owns its key.

This module needs the extra ``keys``. A node signs each entry that it fetched itself separately, so
that a signature stays valid when other entries are removed from a bundle. At `connect` a node
proves that it has its private key. A proof is bound to one callee and one time, so it cannot be
replayed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.errors import MissingExtra
from tidings.exchange.protocol import Nid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

#: Maximum difference in seconds between the clocks of two nodes.
MAX_CLOCK_SKEW_S = 300.0


def _library() -> "type[ed25519.Ed25519PrivateKey]":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise MissingExtra("cryptography", "keys", "signing entries for peers") from None
    return Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class Signer:
    """Ed25519 private key of this node."""

    secret: bytes  #: 32 random bytes

    @property
    def key(self) -> bytes:
        """Public key, which other nodes pin in the option ``exchange.friends``."""
        return _library().from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, which has 64 bytes."""
        return _library().from_private_bytes(self.secret).sign(message)


def is_valid_signature(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the signature of the message was made with this key."""
    _library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def connect_proof_message(to: Nid, port: int, at: float) -> bytes:
    """Return the bytes that a caller signs to prove its key to the node ``to``."""
    return b"tidings connect\0%s\0%d\0%d" % (to.encode(), port, int(at))


class ProofVerifier:
    """Verifier of proofs that a node owns its key, which rejects replayed proofs."""

    def __init__(self) -> None:
        self._last_proof_at: dict[bytes, int] = {}

    def is_valid_proof(
        self, key: bytes, proof: bytes, own_nids: set[Nid], port: int, at: float, now: float
    ) -> bool:
        """Return whether a proof is valid and has not been used before.

        ``own_nids`` are the addresses under which the caller may have reached this node, ``port``
        is the caller's port and ``at`` is the time in the proof.
        """
        if abs(now - at) > MAX_CLOCK_SKEW_S or int(at) <= self._last_proof_at.get(key, -1):
            return False
        if not any(
            is_valid_signature(key, connect_proof_message(nid, port, at), proof) for nid in own_nids
        ):
            return False
        self._last_proof_at[key] = int(at)
        return True
