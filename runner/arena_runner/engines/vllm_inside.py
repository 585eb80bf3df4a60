"""What runs inside the vLLM process: reads the adapters back from where it computes, and guards every route.

This file alone is put on the path of vLLM's interpreter, which has nothing else of ours: it imports only what vLLM
itself needs. `Reader` is vLLM's `--worker-extension-cls`, called by `collective_rpc`; `Guard` is a `--middleware`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import torch
from torch import Tensor

NAMES = "/arena/adapters"
OPEN = frozenset({"/health"})


class Reader:
    """Mixed into vLLM's worker; tested against vLLM 0.32."""

    def arena_read(self, ranks: dict[str, int]) -> dict[str, dict[str, str]]:
        """Digest of every module in the slots of some adapters, by their integer ids (as text, from JSON).

        `ranks` says how much of a slot an adapter takes; what lies beyond must be zero. An id without a slot is left
        out. `arena_runner.engines.reading.digest` computes the same on the trainer's side.
        """
        manager = self.model_runner.lora_manager._adapter_manager  # type: ignore[attr-defined] # noqa: SLF001 - the worker this is mixed into; vLLM has no public way
        held = {str(found): slot for slot, found in enumerate(manager.lora_index_to_id) if found is not None}
        return {
            number: {
                name: _digest(a[held[number], 0], b[held[number], 0], rank) for name, a, b in _sites(manager)
            }
            for number, rank in ranks.items()
            if number in held
        }


def _sites(manager: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Every linear layer by the name it has in the checkpoint, with its stacks over slots."""
    for name, module in manager.modules.items():
        stacked = getattr(module, "lora_a_stacked", None)
        if not isinstance(stacked, tuple):
            continue  # embeddings and the head, which carry no adapter of ours
        parts = manager.packed_modules.get(name) or [name]
        yield from zip(parts, stacked, module.lora_b_stacked, strict=True)


def _digest(a: Tensor, b: Tensor, rank: int) -> str:
    """A is (max rank, in), B is (out, max rank), with alpha/rank multiplied in."""
    if not bool(b.any()):
        return ""
    if bool(a[rank:].any()) or bool(b[:, rank:].any()):
        return "more than its rank"
    a, b = a[:rank], b[:, :rank]
    total = hashlib.sha256(f"{a.dtype} {tuple(a.shape)} {tuple(b.shape)}".encode())
    for tensor in (a, b):
        total.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


Send = Callable[[dict[str, Any]], Awaitable[None]]


class Guard:
    """Asks for the key on every route (vLLM does on /v1 only), and says which integer id a name stands for."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
        elif not secrets.compare_digest(dict(scope["headers"]).get(b"authorization", b""), self._expected):
            await _answer(send, 401, {"error": "Unauthorized"})
        elif scope["path"] == NAMES:
            loaded = scope["app"].state.openai_serving_models.lora_requests
            await _answer(send, 200, {name: request.lora_int_id for name, request in loaded.items()})
        else:
            await self._app(scope, receive, send)


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
