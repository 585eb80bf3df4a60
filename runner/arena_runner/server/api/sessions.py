"""`/i/{deployment}/sessions`: conversations of the published client, and what a prompt within one becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import sessions
from arena_runner.server.services.sessions import Conversation, Owner
from arena_runner.server.world import World
from arena_runner.serving.protocol import Message, Piece

TOO_LONG = "prompt-too-long"
"""Code by which the model server says that a conversation exceeds the model's context."""

T = TypeVar("T")
Inferrer = Annotated[Identity, caller(Role.INFERENCE)]

router = APIRouter(prefix="/i/{deployment}/sessions", tags=["inference"])


@router.get("")
def listed(
    world: TheWorld, caller: Inferrer, deployment: str, namespace: str = "main"
) -> list[dict[str, Any]]:
    """The caller's sessions, the one used last first."""
    return [
        _short(one)
        for one in sessions.listed(world, sessions.owner(world, namespace, deployment, caller.subject))
    ]


@router.get("/{session_id}")
def one(
    world: TheWorld, caller: Inferrer, deployment: str, session_id: str, namespace: str = "main"
) -> dict[str, Any]:
    """One session with what was said."""
    found = sessions.get(world, sessions.owner(world, namespace, deployment, caller.subject), session_id)
    return {**_short(found), "messages": [message.model_dump() for message in found.messages]}


@router.delete("/{session_id}", status_code=204)
def delete(
    world: TheWorld, caller: Inferrer, deployment: str, session_id: str, namespace: str = "main"
) -> Response:
    """Forget a session."""
    sessions.delete(world, sessions.owner(world, namespace, deployment, caller.subject), session_id)
    return Response(status_code=204)


class Talk:
    """A prompt within a session."""

    def __init__(self, world: World, owner: Owner, name: str, prompt: str) -> None:
        self._world, self._owner, self._name, self._prompt = world, owner, name, prompt

    async def ask(self, send: Callable[[tuple[Message, ...]], Awaitable[T]]) -> T:
        """Send the conversation; the oldest exchanges are left out until it fits into the model's context."""
        before = await run_in_threadpool(sessions.history, self._world, self._owner, self._name)
        while True:
            try:
                return await send((*before, Message(role="user", content=self._prompt)))
            except RefusedError as problem:
                if problem.code != TOO_LONG or not before:
                    raise
                before = before[2:]

    async def keep(self, completion: str) -> None:
        """Remember the exchange."""
        await run_in_threadpool(
            sessions.append, self._world, self._owner, self._name, self._prompt, completion
        )

    async def heard(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        """The pieces; what they add up to is remembered once the last one has come, unless it is an error."""
        text = ""
        async for piece in pieces:
            text += piece.text
            if piece.finish is not None:
                await self.keep(text)
            yield piece


def _short(one: Conversation) -> dict[str, Any]:
    return {
        "session_id": one.id,
        "created_at": _moment(one.created),
        "last_updated": _moment(one.updated),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
