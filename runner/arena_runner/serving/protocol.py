"""What the control plane says to a model server. Pure data, no torch: both sides import this file.

| call | request | answer |
|---|---|---|
| `GET /healthz` (no token) | | `Health` |
| `GET /adapters` | | list of `Adapter` |
| `POST /adapters` | `LoadAdapter` | 201 `Adapter`; 200 when that very adapter is loaded already; 409 when the name is another's; 422 when it does not fit |
| `DELETE /adapters/{name}` | | 204; what is being generated ends on it first; 404 |
| `POST /generate` | `Generate` | `Generated`; 404 for an unknown adapter, never the base model |
| `POST /generate_stream` | `GenerateOne` | NDJSON of `Piece`, the last one with `finish` or `error` |
| `POST /logprobs` | `Measure` | `Measured`: for probes |
| `POST /prove` | `Prove` | `Proved`; 422 `policy-mismatch` when the name does not answer by the weights it should; 404 |

All but health need `Authorization: Bearer` with the token the server was started with. Refusals are
`arena_gitops.spec.wire.ErrorBody`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arena_gitops.spec.job import Digest
from arena_gitops.spec.resource import Frozen

BASE = "__base__"
"""adapter name of the bare base model, for probes and tests only"""

AdapterName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:/-]{0,199}$")]
"""unique for ever: what a name means never changes, so nothing can be stale"""


class FileAt(Frozen):
    """A file on the model server's machine, and what its bytes must hash to."""

    path: str
    digest: Digest | None = None


class LoadAdapter(Frozen):
    """Make a PEFT adapter available under a name."""

    name: AdapterName
    path: str | None = None
    """folder with `adapter_model.safetensors` and `adapter_config.json`"""
    files: dict[str, FileAt] = Field(default_factory=dict)
    """the same two files by their names, wherever they lie (a blob store)"""
    digest: Digest | None = None
    """of the adapter's tensors as the trainer states it; verified when given"""
    template: dict[str, str] | None = None
    """the experiment's `prompt_template`: a served prompt is rendered as it was in training"""

    @model_validator(mode="after")
    def _one_source(self) -> LoadAdapter:
        if (self.path is None) == (not self.files):
            raise ValueError("give either path or files")
        return self


class Adapter(Frozen):
    """A loaded adapter."""

    name: AdapterName
    digest: Digest
    """of the tensors as they lie in the model"""
    rank: int
    alpha: float
    template: dict[str, str] | None = None


class Health(Frozen):
    """The process serves."""

    ok: bool = True
    model: str
    revision: str | None
    model_digest: str
    dtype: str
    device: str
    adapters: tuple[str, ...]
    active: int
    waiting: int


class Message(Frozen):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Params(Frozen):
    """How to sample. The defaults are the published client's."""

    max_new_tokens: Annotated[int, Field(ge=1, le=32768)] = 100
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.7
    """0 means greedy"""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    do_sample: bool = True
    seed: int | None = None
    """None draws one; with one, a completion does not depend on what else is being served"""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), max_length=16)


class _Asks(Frozen):
    adapter: AdapterName
    params: Params = Params()
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """tell every token's log-probability at temperature 1, and those of so many others"""


class Generate(_Asks):
    """Several prompts, or several conversations."""

    prompts: tuple[str, ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()
    raw: bool = False
    """prompts are text as the model sees it, without chat template"""


class GenerateOne(_Asks):
    """One prompt, or one conversation."""

    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    raw: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> GenerateOne:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("give either prompt or messages")
        return self


class Finish(Frozen):
    """How a completion ended and what it took."""

    reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int


class Token(Frozen):
    """One sampled token, for those who asked for log-probabilities."""

    text: str
    """as it decodes alone: half a character is U+FFFD"""
    logprob: float
    others: tuple[tuple[str, float], ...] = ()
    """the most likely ones, likeliest first"""


class Result(Frozen):
    """One completion."""

    text: str
    finish: Finish
    tokens: tuple[Token, ...] = ()


class Generated(Frozen):
    """All completions, in the order they were asked for."""

    results: tuple[Result, ...]
    seconds: float


class Piece(Frozen):
    """A piece of a streamed completion: whole characters only."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    """what came since the last piece; their text may still be held back"""
    finish: Finish | None = None
    error: str | None = None
    gone: bool = False
    """with `error`: what generates has gone and comes back; whoever asks again is answered"""


class Measure(Frozen):
    """Ask for the log-probabilities of given tokens."""

    adapter: AdapterName
    prompt_ids: Annotated[tuple[int, ...], Field(min_length=1)]
    token_ids: Annotated[tuple[int, ...], Field(min_length=1)]


class Measured(Frozen):
    """log p of every given token, at temperature 1."""

    logprobs: tuple[float, ...]


class Prove(Frozen):
    """Ask for the policy-identity proof of a loaded adapter (`serving.proof`)."""

    adapter: AdapterName
    digest: Digest | None = None
    """`adapter_digest` as the trainer recorded it"""
    again: bool = False
    """what this process has shown to answer by its weights is only read back"""
    prompt: str | None = None
    """one token more is generated from it, as a request would have it"""


class Proved(Frozen):
    """What was shown."""

    adapter: AdapterName
    digest: Digest
    apart: float
    """nats per token between its answers and what its format means"""
    tolerance: float
    layers: int
    """layers a probe went through now; 0 when adapters of this shape were shown to be served before"""
    tokens: int = 0
    """generated from the prompt, if one was given"""
