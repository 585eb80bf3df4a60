"""Both published clients, unmodified: validate an environment, submit, deploy, `get_action` alone and in batches."""

from __future__ import annotations

import json

import pytest
from archives import MERGE
from customs import AGENTS

pytestmark = pytest.mark.slow

MANIFEST = """
algorithm: {{name: {algorithm}, batch_size: 16, learn_step: 32, lr: 0.001, update_epochs: 1}}
environment: {{name: {environment}, num_envs: 4}}
training: {{max_steps: 64, evo_steps: 16, pop_size: 2, evaluation_interval: 16, eval_loop: 1, target_score: 500.0}}
network:
  latent_dim: 16
  encoder_config: {{hidden_size: [16], activation: ReLU}}
  head_config: {{hidden_size: [16], activation: ReLU}}
mutation:
  probabilities: {{no_mut: 1.0, arch_mut: 0, new_layer: 0, params_mut: 0, act_mut: 0, rl_hp_mut: 0}}
  rand_seed: 1
tournament_selection: {{tournament_size: 2, elitism: true}}
"""

ACT = """
import sys

import numpy as np

from agilerl.arena import ArenaClient

with ArenaClient() as client, client.open_inference_agent(sys.argv[1]) as agent:
    about = agent.metadata.agent
    print(about.algo, about.llm, about.recurrent, about.multi_agent)
    seen = np.random.default_rng(0).random(size=(8, 4)).astype(np.float32)
    actions, hidden = agent.get_action(seen, batched=True)
    alone = [agent.get_action(one)[0] for one in seen]
    print(actions.shape, actions.dtype, hidden, [one.shape for one in alone[:1]])
    print("alike", np.array_equal(np.stack(alone), actions))
    try:
        agent.get_action(np.zeros(3, np.float32))
    except Exception as refused:
        print(type(refused).__name__, refused)
"""

ACT_TOGETHER = """
import sys

import numpy as np

from agilerl.arena import ArenaClient

with ArenaClient() as client, client.open_inference_agent(sys.argv[1]) as agent:
    about = agent.metadata.agent
    print(about.algo, about.llm, about.recurrent, about.multi_agent)
    dice = np.random.default_rng(0)
    seen = {name: dice.random(size=(8, 2)).astype(np.float32) for name in ("left", "right")}
    actions, hidden = agent.get_action(seen, batched=True)
    alone = [agent.get_action({name: one[n] for name, one in seen.items()})[0] for n in range(8)]
    print({name: one.shape for name, one in actions.items()}, hidden, alone[0]["left"].shape)
    print("alike", all(alone[n][name] == one[n] for name, one in actions.items() for n in range(8)))
    masked, _ = agent.get_action(seen, batched=True, info={"action_mask": {"left": np.tile([0, 1], (8, 1))}})
    print(masked["left"].tolist())
    decided = {"right": np.where(np.arange(8) == 3, 1.0, np.nan)}
    print(agent.get_action(seen, batched=True, env_defined_actions=decided)[0]["right"][3])
"""


SFT = """
algorithm: {name: SFT, batch_size: 2, lr: 0.001}
environment: {name: echoes, dataset: echoes}
training: {max_steps: 8, evo_steps: 2, pop_size: 1, evaluation_interval: 2}
network: {pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct, max_context_length: 64}
"""

PREDICT = """
import sys

import numpy as np

from agilerl.arena import ArenaClient

with ArenaClient() as client, client.open_inference_agent(sys.argv[1]) as agent:
    prompts = [f"say {n}" for n in range(3)]
    found, about = agent.predict(np.array(prompts), batched=True)
    alone, _ = agent.predict(np.array(prompts[1]))
    print(found.shape, found.dtype.kind, about.batch_size, about.success, about.inference_time_ms > 0)
    print("alike", str(alone) == found[1])
    said = agent.generate(prompts, params={"do_sample": False, "max_new_tokens": 512})
    print("generated", [one.completion for one in said.results] == found.tolist())
"""


def deployed(site, client, environment, source, algorithm, *flags):
    """An environment sent and validated, trained in by a tiny population, and the best policy serving."""
    name = f"{environment}-run"
    folder = client.folder / environment
    folder.mkdir()
    (folder / "env.py").write_text(source)
    (client.folder / "run.yaml").write_text(MANIFEST.format(algorithm=algorithm, environment=environment))
    client.several(
        ("projects", "create", "Driving", "--simulation-based"),
        ("env", "validate", environment, "--source", str(folder), *flags),
        ("experiments", "submit", "run.yaml", "--project", "Driving", "--experiment-name", name),
    )
    site.wait(name, "completed")
    client.arena("agent", "deploy", name)
    site.until(lambda: serves(site, name), seconds=60)
    return name


@pytest.mark.parametrize("version", ["0.9.0", "1.29.0"])
def test_ppo_in_an_own_environment_is_submitted_deployed_and_asked_for_actions(site, client_of, version):
    client = client_of(version)
    name = deployed(site, client, f"merge-{version.replace('.', '-')}", MERGE, "PPO")
    about, shapes, alike, refused = client.sdk(ACT, name).out.splitlines()[:4]

    assert about == "PPO False False False"
    assert shapes == "(8,) int64 None [()]"
    assert alike == "alike True"
    assert "obs: expected shape (1, 4) (batch first), got (1, 3)" in refused


def test_several_agents_are_submitted_deployed_and_asked_for_a_dict_of_actions(site, client_of):
    client = client_of("1.29.0")
    name = deployed(site, client, "two", AGENTS, "IPPO", "--multi-agent")
    about, shapes, alike, masked, decided = client.sdk(ACT_TOGETHER, name).out.splitlines()[:5]

    assert about == "IPPO False False True"
    assert shapes == "{'left': (8,), 'right': (8,)} None ()"
    assert alike == "alike True"
    assert masked == "[1, 1, 1, 1, 1, 1, 1, 1]"
    assert decided == "1"


def test_a_model_trained_by_sft_predicts(site, client_of):
    client = client_of("1.29.0")
    rows = "".join(f"say {n},{n} it is\n" for n in range(40))
    (client.folder / "echoes.csv").write_text(f"prompt,target\n{rows}")
    (client.folder / "sft.yaml").write_text(SFT)
    mapping = json.dumps({"prompt": "prompt", "target": "target"})
    client.several(
        ("projects", "create", "Echoes", "--llm-based"),
        (
            "datasets",
            "create",
            "echoes",
            "--category",
            "sft",
            "--file",
            "echoes.csv",
            "--column-mapping",
            mapping,
        ),
        ("experiments", "submit", "sft.yaml", "--project", "Echoes", "--experiment-name", "echo"),
    )
    site.wait("echo", "completed")
    client.arena("agent", "deploy", "echo")
    site.until(lambda: serves(site, "echo"), seconds=60)

    assert client.sdk(PREDICT, "echo").out.splitlines() == [
        "(3,) U 3 True True",
        "alike True",
        "generated True",
    ]


def serves(site, name):
    listed = site.get("/api/cli/v1/inference/deployments/list")
    return next((d for d in listed if d["name"] == name and d.get("url")), None)
