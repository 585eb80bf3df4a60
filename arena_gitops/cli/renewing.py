"""The token of a login in the browser: good for an hour, renewed when it is about to end.

Two commands may find that at once; the second waits for the first and takes what it got.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from arena_gitops.cli.credentials import Credential, credential_for, origin, renewed
from arena_gitops.errors import AuthError
from arena_gitops.platforms.accounts import Accounts, Tokens
from arena_gitops.platforms.door import Door, Token

MARGIN_S = 60.0


def opener(url: str, environ: Mapping[str, str], *, key_allowed: bool) -> Token:
    """What opens this origin: a token, or a function that keeps one fresh."""
    found = credential_for(url, environ, key_allowed=key_allowed)
    return found.token if found.refresh_token is None else Renewing(url, environ, found)


def credential_of(tokens: Tokens, now: float) -> Credential:
    """What is kept of a login."""
    return Credential(
        token=tokens.access_token, refresh_token=tokens.refresh_token, expires=now + tokens.expires_in
    )


class Renewing:
    """A token that is renewed before it ends."""

    def __init__(
        self,
        url: str,
        environ: Mapping[str, str],
        credential: Credential,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._environ, self._clock = url, environ, clock
        self._credential = credential

    def __call__(self) -> str:
        """The token, good for a while."""
        if self._ends_soon(self._credential):
            self._credential = renewed(self._url, self._environ, self._renew)
        return self._credential.token

    def _renew(self, known: Credential) -> Credential:
        if not self._ends_soon(known) or known.refresh_token is None:
            return known  # another command has just done it
        door = Door(self._url, None)
        try:
            return credential_of(Accounts(door).refresh(known.refresh_token), self._clock())
        except AuthError as problem:
            where = origin(self._url)
            raise AuthError(
                f"the login at {where} is over ({problem}): arena login --target {where}"
            ) from None
        finally:
            door.close()

    def _ends_soon(self, credential: Credential) -> bool:
        return credential.expires is not None and credential.expires - self._clock() < MARGIN_S
