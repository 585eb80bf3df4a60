"""Start a vLLM for a model server and wrap it; the weights are never loaded into this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from arena_gitops.errors import UsageError
from arena_runner.engines.vllm_process import PYTHON, VllmProcess, VllmSpec, find_python
from arena_runner.models import PLAIN_CHAT, compute_dtype, resolve, weights_digest
from arena_runner.serving.vllm import TextModel, VllmGenerator

LONGEST = 4096
"""tokens of prompt and completion together, where the model takes more"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served."""

    model: str
    models_dir: Path | None
    revision: str | None
    dtype: str | None
    rows: int
    adapters: int
    """computed with at a time"""
    max_rank: int


@contextmanager
def vllm_generator(wanted: Wanted) -> Iterator[VllmGenerator]:
    """A generator over a vLLM that ends with it."""
    python = find_python()
    if python is None:
        raise UsageError(f"--engine vllm needs vLLM: name an interpreter that has it in {PYTHON}")
    folder = resolve(wanted.model, models_dir=wanted.models_dir, revision=wanted.revision)
    base = text_model(wanted, folder)
    spec = VllmSpec(
        model=folder,
        dtype=str(base.dtype).removeprefix("torch."),
        members=wanted.adapters,
        max_rank=wanted.max_rank,
        longest=base.longest,
        rows_in_flight=wanted.rows,
        kept=8 * wanted.adapters,
        raw_logprobs=True,
    )
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arena-vllm-")))
        # in our own group of processes: whoever ends that ends the vLLM too
        process = stack.enter_context(VllmProcess(spec, python, scratch, own_session=False))
        generator = VllmGenerator(base, process, scratch / "adapters")
        stack.callback(generator.close)
        yield generator


def text_model(wanted: Wanted, folder: Path) -> TextModel:
    """Tokenizer, ends and length of a model folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_CHAT
    config = AutoConfig.from_pretrained(folder)
    ends: set[int] = set()
    stored = (
        GenerationConfig.from_pretrained(folder).eos_token_id
        if (folder / "generation_config.json").exists()
        else None
    )
    for value in (stored, config.eos_token_id, tokenizer.eos_token_id):
        ends |= set(value) if isinstance(value, list) else {int(value)} if value is not None else set()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return TextModel(
        ref=wanted.model,
        revision=wanted.revision,
        digest=weights_digest(folder),
        tokenizer=tokenizer,
        dtype=getattr(torch, wanted.dtype) if wanted.dtype else compute_dtype(device),
        eos_ids=frozenset(ends),
        longest=min(getattr(config, "max_position_embeddings", None) or LONGEST, LONGEST),
        device=device,
    )
