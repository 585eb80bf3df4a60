"""Accounts of our own server: who the caller is, what was spent, secrets, and the device login (RFC 8628).

The login has the paths of Keycloak, because the published client looks for it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from arena_gitops.errors import AuthError, PlatformError, PlatformUnreachableError
from arena_gitops.platforms.door import FORM, JSON, Door, Request, form_body, json_body
from arena_gitops.spec.secret import SecretInfo

OIDC = "/realms/arena/protocol/openid-connect"
CLIENT = "arena-gitops"
SECRETS = "/api/v1/secrets"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_BY_S = 5.0

Answer = TypeVar("Answer", bound=BaseModel)

_SECRETS: TypeAdapter[tuple[SecretInfo, ...]] = TypeAdapter(tuple[SecretInfo, ...])


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Profile(_Answer):
    """Who the caller is to the server."""

    subject: str
    role: str


class Credits(_Answer):
    """What finished work has cost."""

    spent: float
    worker_hours: float


class Asked(_Answer):
    """A login that waits for a person."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float
    interval: float = 5.0


class Tokens(_Answer):
    """What a login gives."""

    access_token: str
    refresh_token: str
    expires_in: float


class _Refusal(_Answer):
    error: str
    error_description: str = ""


class _Current(_Answer):
    first_name: str
    role: str


class Accounts:
    """The account routes of one server."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def profile(self) -> Profile:
        """Who the token belongs to; AuthError when the server does not know it."""
        found = self._get("/api/users/current", _Current)
        return Profile(subject=found.first_name, role=found.role)

    def credits(self) -> Credits:
        """What was spent."""
        return self._get("/api/users/credits", Credits)

    def ask(self) -> Asked:
        """Begin a login."""
        return self._post("auth/device", {"scope": "openid profile email"}, Asked)

    def poll(self, asked: Asked) -> Tokens | float:
        """The tokens, or how many seconds longer to wait between two questions while nobody has decided.

        Raises:
            AuthError: It was denied, or not approved in time.
        """
        form = {"grant_type": DEVICE_GRANT, "device_code": asked.device_code}
        answer = self._asked("token", form, Tokens)
        if isinstance(answer, Tokens):
            return answer
        match answer.error:
            case "authorization_pending":
                return 0.0
            case "slow_down":
                return SLOWER_BY_S
            case _:
                raise AuthError(answer.error_description or answer.error)

    def refresh(self, refresh_token: str) -> Tokens:
        """New tokens for those that are over; AuthError when the login itself is."""
        return self._post("token", {"grant_type": "refresh_token", "refresh_token": refresh_token}, Tokens)

    def log_out(self, refresh_token: str) -> None:
        """End a login at the server."""
        self._door.call(_form("logout", {"refresh_token": refresh_token}))

    def secrets(self) -> tuple[SecretInfo, ...]:
        """The names of the server's secrets."""
        answer = self._door.call(Request("GET", SECRETS, repeatable=True))
        try:
            return _SECRETS.validate_json(answer.content)
        except ValidationError as error:
            raise PlatformError(f"the answer to {SECRETS} is no list of secrets: {error}") from error

    def set_secret(self, name: str, value: str) -> SecretInfo:
        """Store a value."""
        path, body = _secret(name), json_body({"value": value})
        answer = self._door.call(Request("PUT", path, headers=JSON, body=body, repeatable=True))
        return _parsed(answer.text, SecretInfo, path)

    def delete_secret(self, name: str) -> None:
        """Forget a value."""
        self._door.call(Request("DELETE", _secret(name)))

    def _get(self, path: str, model: type[Answer]) -> Answer:
        return _parsed(self._door.call(Request("GET", path, repeatable=True)).text, model, path)

    def _post(self, path: str, form: Mapping[str, str], model: type[Answer]) -> Answer:
        answer = self._asked(path, form, model)
        if isinstance(answer, _Refusal):
            raise AuthError(answer.error_description or answer.error)
        return answer

    def _asked(self, path: str, form: Mapping[str, str], model: type[Answer]) -> Answer | _Refusal:
        answer = self._door.call(_form(path, form), accept=frozenset({400, 404, 503}))
        if answer.status_code == 404:
            raise PlatformError(f"{self._door.url} offers no login; put a token into ARENA_API_KEY instead")
        if answer.is_success:
            return _parsed(answer.text, model, path)
        refused = _parsed(answer.text, _Refusal, path)
        if answer.status_code == 503:
            raise PlatformUnreachableError(refused.error_description or refused.error)
        return refused


def _secret(name: str) -> str:
    return f"{SECRETS}/{quote(name, safe='')}"


def _form(path: str, fields: Mapping[str, str]) -> Request:
    # Not repeatable: a code whose tokens were given out is spent.
    return Request("POST", f"{OIDC}/{path}", headers=FORM, body=form_body({"client_id": CLIENT, **fields}))


def _parsed(text: str, model: type[Answer], path: str) -> Answer:
    try:
        return model.model_validate_json(text)
    except ValidationError:
        # The library's own text would quote what it read, that is, a token.
        raise PlatformError(f"the answer to {path} is no {model.__name__.strip('_')}") from None
