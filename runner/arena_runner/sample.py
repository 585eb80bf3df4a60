"""`arena-runner sample`: what a base model says to a few rows, as JSON from standard input to standard output.

For checks, which must not load torch into their own process (`checks.forecast`).
"""

from __future__ import annotations

import json
import sys

import click

from arena_runner.checks.forecast import Sampling


@click.command("sample")
def command() -> None:
    """Read one `Sampling` document, print one list of completions for each of its rows."""
    asked = Sampling.model_validate_json(sys.stdin.read())

    import torch

    from arena_runner.engines.base import Request
    from arena_runner.engines.torch import TorchEngine
    from arena_runner.models import load_base
    from arena_runner.rollouts.prompts import Renderer
    from arena_runner.seeds import row_key

    torch.set_num_threads(1)
    base = load_base(asked.model.id, revision=asked.model.revision)
    renderer = Renderer(base.tokenizer, asked.template, "question")
    requests = [
        Request(
            None,
            renderer.ids(renderer.text(row)),
            asked.max_new_tokens,
            key=row_key(asked.seed, 0, 0, number, copy),
            temperature=asked.temperature,
        )
        for number, row in enumerate(asked.rows)
        for copy in range(asked.samples)
    ]
    said = [base.decode(done.token_ids) for done in TorchEngine(base).generate(requests)]
    click.echo(json.dumps([said[at : at + asked.samples] for at in range(0, len(said), asked.samples)]))
