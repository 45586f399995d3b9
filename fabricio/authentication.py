"""How two Fabrics find that they share a secret: both sides of the handshake, sans-IO.

    step  connecting side (C)                        listening side (L)
    1     Hello: terms, nonce, hints            ->
    2                                           <-   HelloChallenge: terms, nonce, chosen hint
    3     HelloProof: sealed ticket, proof      ->
    4                                           <-   HelloAccepted: ticket, proof
    5     first frame that bears L's ticket     ->   hands the endpoint out

- Terms hold provider, incarnation, the addresses of all lanes, and limits. Nonces are 32 fresh
  random bytes. A ticket is what an engine wants to see in every later frame, 64 random bits; who
  does not have it is not heard.
- A proof is an HMAC-SHA256 over the role of who proves, and over every byte of all frames so far,
  its own included. So neither a change, nor a proof of another handshake, nor one's own proof sent
  back can pass, and terms cannot be talked down.
- 1: a hint tells who knows the same secret which of several is meant, and all others nothing. L
  answers by `HelloDenied` if it knows none of them: it has said nothing about itself then.
- 3: C proves first, and its ticket can be read only by who knows the secret. L *learns here* that C
  is good, or answers by `HelloDenied` and forgets it. Until now L's engine takes nothing from C,
  since C has no ticket.
- 4: C *learns here* that L is good, or sends `HelloDenied`. Until now C's engine takes nothing from
  anybody who does not know the secret.
- Who denies and who is denied have an `AuthenticationError` each: `connect` raises it; on the
  listening side it is logged, counted, and given to the `on_refused` of `Fabric.listen`.

The same frames go without a secret; they prove nothing then (`fabricio/proofs.py`). There is no
shorter handshake, so nobody can ask for one.
"""

from __future__ import annotations

import hmac
import secrets as random
from typing import TYPE_CHECKING

from fabricio.errors import (
    AuthenticationError,
    FabricioError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from fabricio.handshake import (
    ATTEMPT_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    Hello,
    HelloAccepted,
    HelloChallenge,
    HelloProof,
    Terms,
    Ticket,
    check_compatible,
)
from fabricio.proofs import Purpose

if TYPE_CHECKING:
    from fabricio.address import Address
    from fabricio.handshake import OwnTerms
    from fabricio.proofs import Root

_CURE = (
    "give both sides the same secret= (while it is changed, the current and the previous one), or "
    "neither"
)
_NO_PROOF = bytes(PROOF_BYTES)


class Connecting:
    """The connecting side of one attempt.

    Attributes:
        hello: its first frame.
        hello_body: as bytes.
    """

    def __init__(self, roots: tuple[Root, ...], terms: OwnTerms, ticket: Ticket) -> None:
        """Begin an attempt.

        Args:
            roots: of the secrets that count now.
            terms: this side's.
            ticket: what frames to this side must bear.
        """
        self._roots = roots
        self._ticket = ticket
        attempt, nonce = random.token_bytes(ATTEMPT_BYTES), random.token_bytes(NONCE_BYTES)
        hints = tuple(root.hint(attempt, nonce) for root in roots)
        self.hello = Hello(**terms, attempt=attempt, nonce=nonce, hints=hints)
        self.hello_body = self.hello.encode()
        self._said: tuple[bytes, ...] = (self.hello_body,)
        self._root = roots[0]

    def prove(self, challenge: HelloChallenge, body: bytes, address: Address) -> bytes:
        """Answer the challenge.

        Args:
            challenge: the peer's.
            body: as it came.
            address: which the peer is expected to have.

        Returns: body of the frame to send.
        Raises: RemoteProtocolError: the two sides do not fit together; PeerUnreachableError: it
            is another process; AuthenticationError: it says that its lanes are others.
        """
        check_compatible(self.hello, challenge)
        if challenge.incarnation != address.incarnation:
            raise PeerUnreachableError(
                "another process answers at this address, perhaps the peer after a restart: "
                "get its new address",
                provider=self.hello.provider,
            )
        # The proof is about the lanes that it names; frames and pages go to those of the address.
        if self._root.secret and _lanes(challenge) != (address.lanes, address.lane_counts):
            raise AuthenticationError(
                "the peer says that its NICs have other addresses than the address connected to: "
                "get its address anew, from a source that you trust"
            )
        if challenge.chosen >= len(self._roots):
            raise unproven()
        root = self._roots[challenge.chosen]
        said = (*self._said, body)
        frame = HelloProof(
            attempt=self.hello.attempt, sealed=root.seal(self._ticket, *said), proof=_NO_PROOF
        )
        proven = _proven(frame.encode(), root, Purpose.CONNECTING, said)
        self._root, self._said = root, (*said, proven)
        return proven

    def admit(self, accepted: HelloAccepted, body: bytes) -> Ticket:
        """Check the peer's proof.

        Args:
            accepted: its answer to what `prove` returned.
            body: as it came.

        Returns: what frames to the peer must bear.
        Raises: AuthenticationError: it does not know the secret, or something was changed.
        """
        if not _is_proven(body, self._root, Purpose.LISTENING, self._said):
            raise unproven()
        return Ticket(accepted.slots, accepted.cookie)


class Listening:
    """The listening side of one attempt.

    Attributes:
        hello: the connecting side's first frame.
    """

    def __init__(self, roots: tuple[Root, ...], hello: Hello, body: bytes) -> None:
        """Look whether the connecting side knows one of our secrets.

        Args:
            roots: of the secrets that count now, the best first.
            hello: the peer's.
            body: as it came.

        Raises: AuthenticationError: it does not.
        """
        self.hello = hello
        self._root, self._chosen = _choose(roots, hello)
        self._said: tuple[bytes, ...] = (body,)

    def challenge(self, terms: OwnTerms) -> bytes:
        """Ask for a proof.

        Args:
            terms: this side's.

        Returns: body of the frame to send.
        Raises: RemoteProtocolError: the two sides do not fit together.
        """
        mine = HelloChallenge(
            **terms,
            attempt=self.hello.attempt,
            nonce=random.token_bytes(NONCE_BYTES),
            chosen=self._chosen,
        )
        check_compatible(mine, self.hello)
        body = mine.encode()
        self._said += (body,)
        return body

    def admit(self, proof: HelloProof, body: bytes) -> Ticket:
        """Check the connecting side's proof.

        Args:
            proof: its answer to the challenge.
            body: as it came.

        Returns: what frames to it must bear.
        Raises: AuthenticationError: it does not know the secret, or something was changed;
            RemoteProtocolError: it knows the secret and proves nonsense.
        """
        if not _is_proven(body, self._root, Purpose.CONNECTING, self._said):
            raise unproven()
        try:
            ticket = self._root.unseal(proof.sealed, *self._said)
        except ValueError as error:
            raise RemoteProtocolError(f"the peer sent {error}: its fabricio is broken") from error
        self._said += (body,)
        return ticket

    def accept(self, ticket: Ticket) -> bytes:
        """Prove this side; only to whom `admit` has found good.

        Args:
            ticket: what frames to this side must bear.

        Returns: body of the frame to send.
        """
        frame = HelloAccepted(
            attempt=self.hello.attempt, slots=ticket.slots, cookie=ticket.cookie, proof=_NO_PROOF
        )
        return _proven(frame.encode(), self._root, Purpose.LISTENING, self._said)


def unproven() -> FabricioError:
    """Return the error of who denies."""
    return AuthenticationError(
        f"the peer does not prove that it shares this side's secret: {_CURE}. If both do, "
        "somebody between them changes what they say"
    )


def denied() -> FabricioError:
    """Return the error of who is denied."""
    return AuthenticationError(
        f"the peer refuses this side, which does not prove to it that they share a secret: {_CURE}"
    )


def _lanes(terms: Terms) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    return terms.lanes, terms.lane_counts


def _choose(roots: tuple[Root, ...], hello: Hello) -> tuple[Root, int]:
    for root in roots:
        hint = root.hint(hello.attempt, hello.nonce)
        for place, theirs in enumerate(hello.hints):
            if hmac.compare_digest(hint, theirs):
                return root, place
    raise unproven()


def _proven(body: bytes, root: Root, purpose: Purpose, said: tuple[bytes, ...]) -> bytes:
    """Put the proof where a frame ends: over what was said, and over the frame up to there."""
    start = body[:-PROOF_BYTES]
    return start + root.proof(purpose, *said, start)


def _is_proven(body: bytes, root: Root, purpose: Purpose, said: tuple[bytes, ...]) -> bool:
    """Whether the end of a frame proves all that was said, and the frame up to there."""
    return root.proves(purpose, body[-PROOF_BYTES:], *said, body[:-PROOF_BYTES])
