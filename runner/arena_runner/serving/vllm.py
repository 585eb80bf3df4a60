"""The same model server over a vLLM in a process of its own: a token source for our prompts, stop strings and names.

Every adapter is written to a folder of its own and loaded under a name that is never used again, so that neither a
stale prefix cache nor a half-written file can be taken for it. A row of the base model is asked of an adapter of zeros
(`engines.vllm` has the reason). When the vLLM dies this process ends too: whoever supervises it starts it again, and the
control plane gives it its adapters back, as after any other crash.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import httpx
import torch

from arena_gitops.errors import ArenaError
from arena_runner import peft_format
from arena_runner.engines.plain import Adapter as Plain
from arena_runner.engines.reading import NOTHING, PolicyMismatchError, demand, expected
from arena_runner.engines.vllm_process import EngineError, VllmProcess
from arena_runner.serving.decoder import EmptyPromptError, PromptTooLongError
from arena_runner.serving.detokenise import Detokeniser
from arena_runner.serving.path import PathHalf, whole
from arena_runner.serving.protocol import BASE, Adapter, Finish, Params, Piece, Proved, Token
from arena_runner.serving.scheduler import BusyError
from arena_runner.serving.shelf import Loaded, UnfitAdapterError, UnknownAdapterError
from arena_runner.serving.vllm_path import ServedByVllm, weights_of

SEEDS = (1 << 63) - 1
LOOK_S = 0.5
"""how often to look whether the vLLM lives"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model without its weights: what prompts and health need."""

    ref: str
    revision: str | None
    digest: str
    tokenizer: Any
    dtype: torch.dtype
    eos_ids: frozenset[int]
    longest: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(slots=True)
class Asked:
    """One completion on its way."""

    cancelled: bool = False


class VllmGenerator:
    """A `Generator` over a running `VllmProcess`."""

    def __init__(self, base: TextModel, process: VllmProcess, folder: Path, *, queue: int = 1024) -> None:
        self.base = base
        self._process, self._folder, self._queue = process, folder, queue
        rows = process.spec.rows_in_flight
        self._rows = ThreadPoolExecutor(rows, "row")
        self._orders = ThreadPoolExecutor(1, "order")
        self._most = rows
        self._lock = threading.Lock()
        self._loaded: dict[str, tuple[Adapter, str]] = {}
        """name → what it is, and the name vLLM knows it by"""
        self._leaving: set[str] = set()
        self._used: Counter[str] = Counter()
        self._waiting = self._count = 0
        self._zeros: str | None = None
        self._path, self._proving = PathHalf(), threading.Lock()
        self._proved: dict[str, Proved] = {}
        """by the name vLLM knows it by"""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` once the vLLM has died."""
        stop = threading.Event()

        def look() -> None:
            while self._process.alive:
                stop.wait(LOOK_S)
            log.error("vLLM has died; it printed last:\n%s", self._process.last_words())
            gone()

        threading.Thread(target=look, name="vllm watch", daemon=True).start()

    @property
    def load(self) -> tuple[int, int]:
        """See `Generator`."""
        running = sum(self._used.values())
        return running - self._waiting, self._waiting

    def known(self, name: str) -> Adapter | None:
        """See `Generator`."""
        found = self._loaded.get(name)
        return found[0] if found and name not in self._leaving else None

    def adapters(self) -> tuple[Adapter, ...]:
        """See `Generator`."""
        return tuple(about for name, (about, _) in self._loaded.items() if name not in self._leaving)

    def load_adapter(self, new: Loaded) -> Future[None]:
        """See `Generator`."""
        return self._orders.submit(self._load, new)

    def unload_adapter(self, name: str) -> None:
        """See `Generator`."""
        with self._lock:
            self._leaving.add(name)
        self._orders.submit(self._let_go, name)

    def submit(
        self,
        adapter: str,
        prompt_ids: tuple[int, ...],
        params: Params,
        emit: Callable[[Piece], None],
        logprobs: int | None = None,
    ) -> Asked:
        """See `Generator`."""
        room = self._room(len(prompt_ids), params.max_new_tokens)
        with self._lock:
            name = self._name(adapter)
            if self._waiting >= self._queue:
                raise BusyError(f"{self._waiting} requests are waiting already")
            self._used[adapter] += 1
            self._waiting += 1
        asked = Asked()
        body = self._body(name, prompt_ids, params, room)
        if logprobs is not None:
            body["logprobs"] = logprobs
        self._rows.submit(
            self._generate, adapter, asked, body, Detokeniser(self.base.tokenizer, params.stop), emit
        )
        return asked

    def logprobs(
        self, adapter: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]
    ) -> Future[list[float]]:
        """See `Generator`."""
        self._room(len(prompt_ids), len(token_ids))
        with self._lock:
            name = self._name(adapter)
        return self._rows.submit(self._measure, name, prompt_ids, token_ids)

    def prove(self, name: str, digest: str | None = None, *, again: bool = False) -> Proved:
        """Both halves: what the worker holds in the slot that the name leads to, and how it answers."""
        with self._lock:
            sent = self._name(name)
        tensors, config = peft_format.read(self._folder / sent)
        found = peft_format.digest(tensors, config)
        if digest is not None and found != digest:
            raise PolicyMismatchError(f"the files of {name} hash to {found}, the trainer recorded {digest}")
        self._measure(sent, (0,), (0,))  # whoever answers has a slot
        adapter = Plain(tensors, config)
        held = self._process.read(self._process.names()[sent], config.rank)
        wanted = {k: v for k, v in expected(adapter, self.base.dtype).items() if v != NOTHING}
        demand(name, {k: v for k, v in held.items() if v != NOTHING}, wanted, {})
        if again and (before := self._proved.get(sent)) is not None:
            return before.model_copy(update={"layers": 0})
        with self._proving, weights_of(self._process.spec.model, self.base.dtype) as base:
            subject = ServedByVllm(self, adapter, self._process.spec.members, self.base.eos_ids)
            shown = whole(self._path.steps(base, subject, name, adapter, lambda: None))
        proved = Proved(
            adapter=name, digest=found, apart=shown.apart, tolerance=shown.tolerance, layers=shown.layers
        )
        self._proved[sent] = proved
        return proved

    def send(self, word: str, adapter: Plain) -> str:
        """See `vllm_path.Sender`."""
        config = adapter.config
        about = Adapter(name=word, digest="sha256:" + "0" * 64, rank=config.rank, alpha=config.alpha)
        return self._orders.submit(self._send, word, Loaded(adapter.tensors, config, about)).result()

    def take_back(self, sent: str) -> None:
        """See `vllm_path.Sender`."""
        self._orders.submit(self._take_back, sent).result()

    def sent(self, name: str | None) -> str:
        """See `vllm_path.Sender`."""
        with self._lock:
            return self._name(name or BASE)

    def close(self) -> None:
        """End the threads."""
        self._rows.shutdown(wait=False, cancel_futures=True)
        self._orders.shutdown(wait=False, cancel_futures=True)

    def _name(self, adapter: str) -> str:
        """What vLLM knows it by. A row without an adapter is never sent."""
        if adapter == BASE and self._zeros is not None:
            return self._zeros
        if adapter not in self._loaded or adapter in self._leaving:
            names = ", ".join(about.name for about in self.adapters())
            raise UnknownAdapterError(f"adapter {adapter} is not loaded; loaded: {names or 'none'}")
        return self._loaded[adapter][1]

    def _room(self, prompt: int, wanted: int) -> int:
        longest = self._process.spec.longest
        if prompt == 0:
            raise EmptyPromptError("the prompt has no tokens")
        if prompt >= longest:
            raise PromptTooLongError(f"the prompt has {prompt} tokens, {self.base.ref} holds {longest}")
        return min(wanted, longest - prompt)

    def _load(self, new: Loaded) -> None:
        name, config = new.about.name, new.config
        old = self._loaded.get(name)
        if old is not None and old[0] != new.about:
            raise UnfitAdapterError(f"{name} is still in use with digest {old[0].digest}")
        if config.base_digest and config.base_digest != self.base.digest:
            raise UnfitAdapterError(
                f"adapter {name} was trained on base weights {config.base_digest}, "
                f"{self.base.ref} here has {self.base.digest}"
            )
        if old is None:
            if self._zeros is None:
                zeros = {key: torch.zeros_like(tensor) for key, tensor in new.tensors.items()}
                self._zeros = self._send("zeros", Loaded(zeros, config, new.about))
            sent = self._send(new.about.digest.removeprefix("sha256:")[:12], new)
            with self._lock:
                self._loaded[name] = (new.about, sent)
        with self._lock:
            self._leaving.discard(name)

    def _send(self, word: str, new: Loaded) -> str:
        with self._lock:
            self._count += 1
            name = f"a{self._count}-{word}"
        peft_format.save(self._folder / name, new.tensors, new.config)
        try:
            self.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(self._folder / name)})
        except EngineError as problem:
            rmtree(self._folder / name)
            raise UnfitAdapterError(f"adapter {new.about.name}: {problem}") from problem
        return name

    def _let_go(self, name: str) -> None:
        """Unload it unless it is still used or was asked for again."""
        with self._lock:
            if name not in self._leaving or self._used[name] or name not in self._loaded:
                return
            _, sent = self._loaded.pop(name)
            self._leaving.discard(name)
        self._proved.pop(sent, None)
        self._take_back(sent)

    def _take_back(self, sent: str) -> None:
        self.post("/v1/unload_lora_adapter", {"lora_name": sent})
        rmtree(self._folder / sent)

    def _body(self, name: str, prompt_ids: tuple[int, ...], params: Params, room: int) -> dict[str, Any]:
        greedy = not params.do_sample or params.temperature == 0
        seed = params.seed if params.seed is not None else int.from_bytes(os.urandom(7))
        return {
            "model": name,
            "prompt": list(prompt_ids),
            "max_tokens": room,
            "temperature": 0 if greedy else params.temperature,
            "top_p": 1.0 if greedy else params.top_p,
            "seed": seed & SEEDS,
            "stop_token_ids": sorted(self.base.eos_ids),
            "stream": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }

    def _generate(
        self,
        adapter: str,
        asked: Asked,
        body: dict[str, Any],
        text: Detokeniser,
        emit: Callable[[Piece], None],
    ) -> None:
        with self._lock:
            self._waiting -= 1
        try:
            if not asked.cancelled:
                self._follow(asked, body, text, emit)
        except (httpx.HTTPError, ArenaError, ValueError, KeyError) as problem:
            log.warning("a row of %s failed: %s", adapter, problem)
            gone = isinstance(problem, httpx.TransportError)
            emit(Piece(error=f"{type(problem).__name__}: {problem}", gone=gone))
        finally:
            with self._lock:
                self._used[adapter] -= 1
                leaves = adapter in self._leaving
            if leaves:
                self._orders.submit(self._let_go, adapter)

    def _follow(
        self, asked: Asked, body: dict[str, Any], text: Detokeniser, emit: Callable[[Piece], None]
    ) -> None:
        """Pass on what comes; leaving the stream makes vLLM stop."""
        count = 0
        for tokens, told in self._tokens(body):
            if asked.cancelled:
                return
            new = ""
            for token in tokens:
                count += 1
                if token in self.base.eos_ids:
                    self._finish(body, "stop", count, text, new, told, emit)
                    return
                new += text.push(token)
                if text.stopped:
                    self._finish(body, "stop", count, text, new, told, emit)
                    return
            if count >= body["max_tokens"]:
                self._finish(body, "length", count, text, new, told, emit)
                return
            if new or told:
                emit(Piece(text=new, tokens=told))
        raise EngineError("vLLM's answer ended too early")

    @staticmethod
    def _finish(  # noqa: PLR0917 - everything an ending has
        body: dict[str, Any],
        reason: Literal["stop", "length"],
        count: int,
        text: Detokeniser,
        new: str,
        told: tuple[Token, ...],
        emit: Callable[[Piece], None],
    ) -> None:
        new += text.finish()
        finish = Finish(reason=reason, prompt_tokens=len(body["prompt"]), completion_tokens=count)
        emit(Piece(text=new, tokens=told, finish=finish))

    def _tokens(self, body: dict[str, Any]) -> Iterator[tuple[list[int], tuple[Token, ...]]]:
        """Token ids as they come, with log-probabilities where they were asked for."""
        with self._process.http.stream("POST", "/v1/completions", json=body) as answer:
            if not answer.is_success:
                answer.read()
                raise EngineError(f"vLLM refused: {answer.status_code} {answer.text[:300]}")
            for line in answer.iter_lines():
                data = line.removeprefix("data: ")
                if not line.startswith("data: ") or data == "[DONE]":
                    continue
                for choice in json.loads(data).get("choices", ()):
                    yield list(choice.get("token_ids") or ()), _told(choice.get("logprobs"))

    def _measure(self, name: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> list[float]:
        body = {
            "model": name,
            "prompt": [*prompt_ids, *token_ids],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        told = self.post("/v1/completions", body)["choices"][0]["prompt_logprobs"][len(prompt_ids) :]
        return [float(entry[str(token)]["logprob"]) for entry, token in zip(told, token_ids, strict=True)]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """See `vllm_path.Sender`."""
        answer = self._process.http.post(path, json=body)
        if not answer.is_success:
            raise EngineError(f"vLLM refused {path}: {answer.status_code} {answer.text[:500]}")
        kind = answer.headers.get("content-type", "")
        return answer.json() if kind.startswith("application/json") else None


def _told(found: dict[str, Any] | None) -> tuple[Token, ...]:
    if not found:
        return ()
    others = found.get("top_logprobs") or [{}] * len(found["tokens"])
    return tuple(
        Token(
            text=word,
            logprob=value,
            others=tuple(sorted((rivals or {}).items(), key=lambda item: -item[1])),
        )
        for word, value, rivals in zip(found["tokens"], found["token_logprobs"], others, strict=True)
    )
