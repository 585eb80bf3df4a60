"""The policy server's wire: arrays in and out, files as they are loaded."""

from __future__ import annotations

import base64
import hashlib
import io
from contextlib import contextmanager

import numpy as np
from starlette.testclient import TestClient

from arena_runner.policies.crew import POLICY, SPEC
from arena_runner.serving.policy_app import create_app


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


@contextmanager
def acting(crews, folders):
    """A client of a policy server with the second member of each crew, by the crew's name."""
    with TestClient(create_app("secret"), headers={"Authorization": "Bearer secret"}) as client:
        for name, crew in crews.items():
            folder = folders.mktemp(name)
            crew.save(1, folder)
            answer = client.post("/adapters", json={"name": name, "files": files(folder)})
            assert answer.status_code == 201, answer.text
        yield client


def act(http, name, obs, rows, **more):
    return http.post("/act", json={"adapter": name, "obs": obs, "batch_size": rows, **more})
