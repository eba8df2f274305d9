"""Ed25519 keys, for those who want to know whom they listen to. Needs the extra ``keys``.

A node signs the entries it has fetched itself, one by one, so that a signature outlives the removal of others from a bundle,
and proves at `connect` that it holds its key. A proof is for one callee and one moment: it cannot be used again elsewhere.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.errors import MissingExtra
from tidings.exchange.protocol import Nid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

#: Clocks of two nodes may differ by so much.
MAX_CLOCK_SKEW_S = 300.0


def _library() -> "type[ed25519.Ed25519PrivateKey]":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise MissingExtra("cryptography", "keys", "signing for neighbours") from None
    return Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class Signer:
    """A node's own key."""

    secret: bytes  #: 32 random ones

    @property
    def key(self) -> bytes:
        """The public part, by which friends know the node."""
        return _library().from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return _library().from_private_bytes(self.secret).sign(text)


def is_valid_signature(key: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's, of this text."""
    _library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def connect_proof_message(to: Nid, port: int, at: float) -> bytes:
    """What a caller signs when it connects."""
    return b"tidings connect\0%s\0%d\0%d" % (to.encode(), port, int(at))


class ProofVerifier:
    """Checks introductions; each is good once."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def is_valid_proof(
        self, key: bytes, proof: bytes, own_nids: set[Nid], port: int, at: float, now: float
    ) -> bool:
        """``ours`` are the names under which a caller may have reached us."""
        if abs(now - at) > MAX_CLOCK_SKEW_S or int(at) <= self._last.get(key, -1):
            return False
        if not any(
            is_valid_signature(key, connect_proof_message(nid, port, at), proof) for nid in own_nids
        ):
            return False
        self._last[key] = int(at)
        return True
