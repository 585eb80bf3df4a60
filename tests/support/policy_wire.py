"""The policy server's wire: arrays in and out, files as they are loaded."""

from __future__ import annotations

import base64
import hashlib
import io

import numpy as np

from arena_runner.policies.crew import POLICY, SPEC


def npy(values):
    into = io.BytesIO()
    np.save(into, values)
    return base64.b64encode(into.getvalue()).decode()


def array(text):
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)


def files(folder):
    return {
        name: {
            "path": str(folder / name),
            "digest": "sha256:" + hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
        for name in (POLICY, SPEC)
    }


def act(http, name, obs, rows, **more):
    return http.post("/act", json={"adapter": name, "obs": obs, "batch_size": rows, **more})
