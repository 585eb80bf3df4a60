"""Memory of one to ten adapters on one base model in one process: `python runner/bench/shelf.py --model FOLDER`.

Proportional set size after each adapter (rank 8 on queries and values, bf16) has been put on a model server's shelf;
nothing is generated. The same file under ten names: each is read and kept by itself.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from pathlib import Path

import psutil
import torch

from arena_runner.adapters import Population
from arena_runner.models import load_base
from arena_runner.serving.load import read_adapter
from arena_runner.serving.protocol import LoadAdapter
from arena_runner.serving.shelf import Shelf


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    model = str(Path(parser.parse_args().model).expanduser())
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = Population.attach(
            load_base(model, dtype=torch.bfloat16), targets=["q_proj", "v_proj"], ranks=[8], alphas=[16.0]
        )
        made.save(0, Path(folder))
        del made
        shelf = Shelf(load_base(model, dtype=torch.bfloat16))
        gc.collect()
        for number in range(1, 11):
            shelf.add(read_adapter(LoadAdapter(name=f"d{number}@1", path=folder)))
            gc.collect()
            sys.stdout.write(f"{number}: {psutil.Process().memory_full_info().pss >> 20} MiB\n")


if __name__ == "__main__":
    main()
