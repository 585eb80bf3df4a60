"""Memory of many deployments on one base model against one: `python runner/bench/deployments.py --model FOLDER`.

A real server with its model server and no MLflow; every deployment serves a member of its own (rank 8 on queries and
values, random). Proportional set size of the server and everything below it, after each deployment has answered, and
the most while all are asked at once. One JSON object. `--alone`: the model server without a control plane, which saves
the proofs of ten promotions; what the control plane takes is the same for one and for ten.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import promotions
import psutil
from promotions import Site, deployment, make_adapters, until
from servers import running

STRENGTH = 0.02
"""of the adapters: in bf16, one of nine at 0.1 was refused for rounding"""
WORKER = [sys.executable, str(promotions.TESTS / "runner" / "server" / "scripted_worker.py")]
ASK = {"prompts": ["Why is the sky blue?"], "params": {"max_new_tokens": 32}}


@contextmanager
def site(home: Path, model: Path, adapters: Path, members: int, dtype: str) -> Iterator[tuple[Site, int]]:
    """A server whose scripted worker has exported the adapters, and its process."""
    serve = [sys.executable, "-m", "arena_runner.cli", "serve", "--dtype", dtype]
    settings = {"worker": {"command": WORKER}, "model_server": {"command": serve}}
    (home / "settings.yaml").write_text(json.dumps(settings))
    with (
        running(home, OMP_NUM_THREADS="1") as (url, headers, process),
        httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as http,
    ):
        made = Site(http, url, headers["Authorization"].split()[1], home)
        script = {"members": members, "adapters": str(adapters)}
        manifest = {"algorithm": {"name": "GRPO"}, "training": {"max_steps": 8}, "script": script}
        made.put("experiment", "bench", {"manifest": manifest, "inputs": {}, "model": {"id": str(model)}})
        yield made, process.pid


def tree_pss(pid: int) -> int:
    """Proportional set size of a process and everything below it."""
    top = psutil.Process(pid)
    return sum(one.memory_full_info().pss for one in (top, *top.children(recursive=True)))


def answers(live: Site, name: str) -> bool:
    """Whether a deployment answers."""
    return bool(live.http.post(f"/i/{name}/generate", json=ASK).status_code == 200)


def all_at_once(live: Site, names: list[str], pid: int) -> int:
    """The most memory while every deployment generates."""
    done, most = threading.Event(), 0
    with ThreadPoolExecutor(len(names)) as threads:
        asked = [threads.submit(answers, live, name) for name in names]
        while not done.is_set():
            most = max(most, tree_pss(pid))
            if all(one.done() for one in asked):
                done.set()
            time.sleep(0.05)
    assert all(one.result() for one in asked)
    return most


def measured(model: Path, count: int, dtype: str) -> dict[str, Any]:
    """With one deployment, then with `count`."""
    promotions.ADAPTERS = count
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "home").mkdir()
        make_adapters(model, root / "adapters", STRENGTH)
        with site(root / "home", model, root / "adapters", count, dtype) as (live, pid):
            names = [f"d{number}" for number in range(count)]
            figures = {}
            for number, name in enumerate(names):
                live.put("deployment", name, deployment(number))
                until(lambda name=name: answers(live, name), 1200, 0.2)
                sys.stderr.write(f"{name} answers; {tree_pss(pid) >> 20} MiB\n")
                if number == 0:
                    time.sleep(3)
                    figures["one"] = tree_pss(pid)
                    figures["one_model_server"] = live.model_server().memory_full_info().pss
                    figures["one_asked"] = all_at_once(live, names[:1], pid)
            time.sleep(3)
            figures["many"] = tree_pss(pid)
            figures["many_model_server"] = live.model_server().memory_full_info().pss
            figures["many_asked"] = all_at_once(live, names, pid)
    told: dict[str, Any] = {f"{name}_mib": value >> 20 for name, value in figures.items()}
    told |= {
        f"ratio{part}": round(figures[f"many{part}"] / figures[f"one{part}"], 3)
        for part in ("", "_model_server", "_asked")
    }
    return {"model": model.name, "dtype": dtype, "deployments": count, **told}


def alone(model: Path, count: int, dtype: str) -> dict[str, Any]:
    """The same figures of a model server that is told to load the adapters."""
    promotions.ADAPTERS = count
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_adapters(model, root, STRENGTH)
        command = [sys.executable, "-m", "arena_runner.cli", "serve", "--model", str(model), "--dtype", dtype]
        environment = {**os.environ, "ARENA_MODEL_SERVER_TOKEN": "bench", "OMP_NUM_THREADS": "1"}
        ready = root / "ready.json"
        process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment)
        try:
            until(ready.exists, 300, 0.2)
            url, headers = json.loads(ready.read_text())["url"], {"Authorization": "Bearer bench"}
            with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as http:
                figures = {}
                for number in range(count):
                    load = {"name": f"d{number}@1", "path": str(root / f"m{number}")}
                    http.post("/adapters", json=load).raise_for_status()
                    http.post("/generate", json={"adapter": load["name"], **ASK}).raise_for_status()
                    if number == 0:
                        figures["one"] = tree_pss(process.pid)
                figures["many"] = tree_pss(process.pid)
        finally:
            process.terminate()
            process.wait(60)
    ratio = round(figures["many"] / figures["one"], 3)
    told: dict[str, Any] = {f"{name}_mib": value >> 20 for name, value in figures.items()}
    return {"model": model.name, "dtype": dtype, "adapters": count, **told, "ratio": ratio}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--deployments", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="No control plane.")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    given = parser.parse_args()
    measure = alone if given.alone else measured
    figures = measure(given.model.expanduser(), given.deployments, given.dtype)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
