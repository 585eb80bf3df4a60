"""`arena-runner merge`: an adapter and its base model become one model folder that plain transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arena_gitops.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn


@click.command("merge")
@click.argument("adapter", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder to write; new.")
@click.option("--model", help="Base model; default: the one the adapter names.")
@click.option(
    "--models-dir", type=click.Path(file_okay=False, path_type=Path), help="Default: $ARENA_MODELS_DIR."
)
def command(*, adapter: Path, out: Path, model: str | None, models_dir: Path | None) -> None:
    """Write base weights plus the scaled product of ADAPTER's matrices, in the precision the base is stored in."""
    if out.exists():
        raise UsageError(f"{out} exists; give another folder with --out")

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from arena_runner import peft_format
    from arena_runner.models import resolve, weights_digest

    tensors, config = peft_format.read(adapter)
    logging.disable_progress_bar()
    folder = resolve(model or config.base, models_dir=models_dir)
    found = weights_digest(folder)
    if config.base_digest and found != config.base_digest:
        raise UsageError(
            f"the adapter was trained on base weights {config.base_digest}, those in {folder} are {found}"
        )
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    with torch.no_grad():
        add(base, tensors, config.alpha / config.rank)
    base.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder).save_pretrained(out)
    click.echo(f"{len(tensors) // 2} layers merged into {out}")


def add(base: nn.Module, tensors: dict[str, Tensor], scale: float) -> None:
    """W ← W + scale · B A, computed in fp32; every tensor of the adapter must find its layer."""
    from arena_runner.peft_format import tensor_names
    from arena_runner.serving.shelf import modules

    for name in modules(tensors):
        name_a, name_b = tensor_names(name)
        weight = base.get_parameter(f"{name}.weight").data
        delta = scale * (tensors[name_b].float() @ tensors[name_a].float())
        weight.copy_((weight.float() + delta).to(weight.dtype))
