"""The cryptography of the handshake: keys from a secret, proofs, hints and the seal. Sans-IO.

Secrets are never used as they are. HKDF (RFC 5869) over HMAC-SHA256 makes a root of each, and of
the root one key for each purpose, so that nothing made for one purpose can serve another: a proof
of the connecting side is no proof of the listening side.

Without a secret the root is one that everybody can compute. Then the same handshake proves nothing,
and who has a secret finds that the other has not.
"""

from __future__ import annotations

import enum
import hmac
from hashlib import sha256

from fabricio.handshake import (
    HINT_BYTES,
    MAX_PATH_COUNT,
    PROOF_BYTES,
    PROTOCOL_VERSION,
    Ticket,
)

_LABEL = f"fabricio handshake {PROTOCOL_VERSION}, HKDF and HMAC with SHA-256".encode()
_COOKIE_BYTES = 8
_SLOT_BYTES = 2


class Purpose(enum.Enum):
    """What a key is for."""

    HINT = b"hint of the connecting side"
    SEAL = b"seal of the connecting side's ticket"
    CONNECTING = b"proof of the connecting side"
    LISTENING = b"proof of the listening side"


class Root:
    """What is kept of a secret: it makes keys, and shows nothing of itself.

    Attributes:
        secret: whether there is a secret, so that a proof proves something.

    Thread: any.   Source: RFC 5869, RFC 2104.
    """

    __slots__ = ("_key", "secret")

    def __init__(self, secret: bytes) -> None:
        """Extract it from a secret, or from b"" where there is none."""
        self._key = hmac.digest(_LABEL, secret, sha256)
        self.secret = secret != b""

    def hint(self, *context: bytes) -> bytes:
        """Return a few bytes by which who knows the secret finds it among others."""
        return self._mac(Purpose.HINT, context)[:HINT_BYTES]

    def proof(self, purpose: Purpose, *context: bytes) -> bytes:
        """Prove that a side that knows the secret has said and heard all of `context`."""
        return self._mac(purpose, context)

    def proves(self, purpose: Purpose, proof: bytes, *context: bytes) -> bool:
        """Whether `proof` is that of who knows the secret, found in constant time."""
        return hmac.compare_digest(self._mac(purpose, context), proof)

    def seal(self, ticket: Ticket, *context: bytes) -> bytes:
        """Hide a ticket from who does not know the secret.

        Args:
            ticket: what to hide. Whether it was changed under way shows the proof, not the seal.
            context: must never be the same for two tickets: it holds both sides' nonces.
        """
        slots = b"".join(slot.to_bytes(_SLOT_BYTES, "big") for slot in ticket.slots)
        return self._cover(ticket.cookie.to_bytes(_COOKIE_BYTES, "big") + slots, context)

    def unseal(self, sealed: bytes, *context: bytes) -> Ticket:
        """Give a ticket back.

        Raises: ValueError: that was never a ticket.
        """
        count, odd = divmod(len(sealed) - _COOKIE_BYTES, _SLOT_BYTES)
        if odd or not 1 <= count <= MAX_PATH_COUNT:
            raise ValueError(f"a sealed ticket of {len(sealed)} bytes")
        clear = self._cover(sealed, context)
        slots = clear[_COOKIE_BYTES:]
        return Ticket(
            tuple(
                int.from_bytes(slots[place : place + _SLOT_BYTES], "big")
                for place in range(0, len(slots), _SLOT_BYTES)
            ),
            int.from_bytes(clear[:_COOKIE_BYTES], "big"),
        )

    def _cover(self, data: bytes, context: tuple[bytes, ...]) -> bytes:
        """Add a key stream that only this root and this context make; twice gives `data` back."""
        stream = b"".join(
            self._mac(Purpose.SEAL, (block.to_bytes(4, "big"), *context))
            for block in range(-(-len(data) // PROOF_BYTES))
        )
        return bytes(a ^ b for a, b in zip(data, stream, strict=False))

    def _mac(self, purpose: Purpose, context: tuple[bytes, ...]) -> bytes:
        # HKDF-Expand, of which one block is enough.
        key = hmac.digest(self._key, purpose.value + b"\1", sha256)
        mac = hmac.new(key, digestmod=sha256)
        for part in context:
            mac.update(len(part).to_bytes(8, "big"))  # so that no byte moves between two parts
            mac.update(part)
        return mac.digest()


def roots_of(secrets: tuple[bytes, ...]) -> tuple[Root, ...]:
    """Return a root for each secret, or the one of all who have none."""
    return tuple(map(Root, secrets or (b"",)))
