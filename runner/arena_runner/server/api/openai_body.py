"""Bodies of the OpenAI dialect, translated to ours. What we do not do is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from arena_runner.serving.protocol import Message, Params, Token

DEFAULT_TOKENS = 512
HARMLESS: dict[str, tuple[Any, ...]] = {
    "metadata": (),
    "store": (),
    "service_tier": (),
    "prompt_cache_key": (),
    "parallel_tool_calls": (),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "logit_bias": ({}, None),
    "tools": ([], None),
    "tool_choice": ("none", "auto", None),
    "response_format": ({"type": "text"}, None),
    "suffix": (None, ""),
    "echo": (False, None),
    "best_of": (1, None),
}
"""Keys that change nothing: always (no values listed), or with the listed values only."""


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool = False


class Turn(BaseModel):
    """One message as clients write it: text, or parts that are all text."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]]

    @model_validator(mode="after")
    def _only_text(self) -> Turn:
        parts = [] if isinstance(self.content, str) else self.content
        odd = sorted({str(part.get("type")) for part in parts} - {"text"})
        if odd:
            raise ValueError(f"only text content is understood, not {', '.join(odd)}")
        return self

    def message(self) -> Message:
        """As the model server takes it."""
        role: Literal["system", "user", "assistant"] = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return Message(role=role, content=self.content)
        return Message(role=role, content="".join(str(part.get("text", "")) for part in self.content))


class Ask(BaseModel):
    """What both completions share."""

    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=64)] | None = None
    user: str | None = None
    safety_identifier: str | None = None

    @property
    def session(self) -> str | None:
        """Whose request it is, in the caller's words."""
        return self.safety_identifier or self.user

    @model_validator(mode="after")
    def _understood(self) -> Ask:
        extra = self.model_extra or {}
        odd = [
            key
            for key, value in extra.items()
            if key not in HARMLESS or (HARMLESS[key] and value not in HARMLESS[key])
        ]
        if odd:
            raise ValueError(f"not supported: {', '.join(sorted(odd))}")
        if self.stream and self.copies > 1:
            raise ValueError("n > 1 is not supported together with stream")
        return self

    @property
    def copies(self) -> int:
        """Completions wanted of each prompt."""
        return self.n or 1

    @property
    def usage_wanted(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def params(self) -> Params:
        """How to sample."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Params(
            max_new_tokens=self.max_completion_tokens or self.max_tokens or DEFAULT_TOKENS,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=stop,
        )


class ChatAsk(Ask):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Turn], Field(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @model_validator(mode="after")
    def _rivals_of_something(self) -> ChatAsk:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        return self

    @property
    def rivals(self) -> int | None:
        """How many other tokens to tell beside each; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def conversation(self) -> tuple[Message, ...]:
        """As the model server takes it."""
        return tuple(turn.message() for turn in self.messages)


class TextAsk(Ask):
    """Body of `/v1/completions`."""

    prompt: str | Annotated[list[str], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def prompts(self) -> tuple[str, ...]:
        """Every prompt, each as often as `n` says."""
        texts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        return tuple(text for text in texts for _ in range(self.copies))


def chat_logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    """Tokens as a chat tells them."""
    content = [
        {**_entry(token.text, token.logprob), "top_logprobs": [_entry(*other) for other in token.others]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    """Tokens as a plain completion tells them."""
    starts = accumulate((len(token.text) for token in tokens), initial=0)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.others) for token in tokens],
        "text_offset": [start for start, _ in zip(starts, tokens, strict=False)],
    }


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
