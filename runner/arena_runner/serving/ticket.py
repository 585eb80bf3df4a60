"""One completion, from the scheduler's thread into asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from arena_gitops.errors import ArenaError
from arena_runner.serving.generator import Generator
from arena_runner.serving.protocol import Finish, Params, Piece, Result, Token
from arena_runner.serving.scheduler import StoppedError


class GenerationError(ArenaError):
    """The model failed while it generated."""


class Ticket:
    """An async stream of pieces; closing it early cancels the row."""

    def __init__(
        self,
        scheduler: Generator,
        adapter: str,
        ids: tuple[int, ...],
        params: Params,
        logprobs: int | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece] = asyncio.Queue()

        def emit(piece: Piece) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, piece)

        self._row = scheduler.submit(adapter, ids, params, emit, logprobs)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Every piece up to the one that says how it ended."""
        try:
            while True:
                piece = await self._queue.get()
                yield piece
                if piece.finish or piece.error is not None:
                    return
        finally:
            self.cancel()

    async def whole(self) -> Result:
        """The finished completion."""
        text: list[str] = []
        tokens: list[Token] = []
        finish: Finish | None = None
        async for piece in self.pieces():
            if piece.error is not None:
                raise (StoppedError if piece.gone else GenerationError)(piece.error)
            text.append(piece.text)
            tokens += piece.tokens
            finish = piece.finish
        assert finish is not None
        return Result(text="".join(text), finish=finish, tokens=tuple(tokens))

    def cancel(self) -> None:
        """Stop generating, if it still does."""
        self._row.cancelled = True
