"""What the control plane says to the policy server. Pure data, no torch: both sides import this file.

One process (`arena-runner serve-policies`) holds every deployed policy by the name of its revision.

| call | request | answer |
|---|---|---|
| `GET /healthz` (no token) | | `{"ok": true}` |
| `GET /adapters` | | list of `{"name"}`: policies are told by the same route as adapters, so that one controller keeps both |
| `POST /adapters` | `LoadPolicy` | 201, or 200 when these very files are loaded already; 409 when the name is another's; 422 |
| `DELETE /adapters/{name}` | | 204; 404 |
| `POST /act` | `Act` | `Acted`; 404 for an unknown policy; 422 names what was expected |
| `POST /probe` | `Probe` | `Acted` on an observation of zeros: one real action before traffic |

Arrays are in the published wire format (`serving.arrays`). Refusals are `arena_gitops.spec.wire.ErrorBody`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from arena_gitops.spec.resource import Frozen
from arena_runner.serving.protocol import AdapterName, FileAt

POLICIES = "arena:policies"
"""stands where a language model's revision names its base model: policies have none and share one process"""
POLICY_FILES = ("policy.safetensors", "policy.json")


class LoadPolicy(Frozen):
    """Make a policy available under a name: weights and spec, wherever they lie."""

    name: AdapterName
    files: dict[str, FileAt]


class Observed(Frozen):
    """Body of `get_action`, as the published client sends it."""

    obs: JsonValue
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 1
    hidden_state: JsonValue = None
    action_mask: JsonValue = None
    env_defined_actions: JsonValue = None


class Act(Observed):
    """The same, for one of the policies."""

    adapter: AdapterName


class Probe(Frozen):
    """Ask for one real action."""

    adapter: AdapterName


class Acted(Frozen):
    """What the policy does."""

    action: JsonValue
    hidden_state: JsonValue = None
