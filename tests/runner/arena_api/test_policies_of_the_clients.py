"""Both published clients, unmodified: submit PPO on a registered environment, deploy, `get_action` alone and in batches."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PPO = """
algorithm: {name: PPO, batch_size: 16, learn_step: 32, lr: 0.001, update_epochs: 1}
environment: {name: CartPole-v1, num_envs: 4}
training: {max_steps: 64, evo_steps: 16, pop_size: 2, evaluation_interval: 16, eval_loop: 1, target_score: 500.0}
network:
  latent_dim: 16
  encoder_config: {hidden_size: [16], activation: ReLU}
  head_config: {hidden_size: [16], activation: ReLU}
mutation:
  probabilities: {no_mut: 1.0, arch_mut: 0, new_layer: 0, params_mut: 0, act_mut: 0, rl_hp_mut: 0}
  rand_seed: 1
tournament_selection: {tournament_size: 2, elitism: true}
"""

ACT = """
import sys

import numpy as np

from agilerl.arena import ArenaClient

with ArenaClient() as client, client.open_inference_agent(sys.argv[1]) as agent:
    about = agent.metadata.agent
    print(about.algo, about.llm, about.recurrent, about.multi_agent)
    seen = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    actions, hidden = agent.get_action(seen, batched=True)
    alone = [agent.get_action(one)[0] for one in seen]
    print(actions.shape, actions.dtype, hidden, [one.shape for one in alone[:1]])
    print("alike", np.array_equal(np.stack(alone), actions))
    try:
        agent.get_action(np.zeros(3, np.float32))
    except Exception as refused:
        print(type(refused).__name__, refused)
"""


@pytest.mark.parametrize("version", ["0.9.0", "1.29.0"])
def test_ppo_is_submitted_deployed_and_asked_for_actions(site, client_of, version):
    client, name = client_of(version), f"pole-{version.replace('.', '-')}"
    (client.folder / "ppo.yaml").write_text(PPO)
    client.arena("projects", "create", "Poles", "--simulation-based")
    client.arena("experiments", "submit", "ppo.yaml", "--project", "Poles", "--experiment-name", name)
    site.wait(name, "completed")
    client.arena("agent", "deploy", name)
    site.until(lambda: serves(site, name), seconds=60)
    about, shapes, alike, refused = client.sdk(ACT, name).out.splitlines()[:4]

    assert about == "PPO False False False"
    assert shapes == "(8,) int64 None [()]"
    assert alike == "alike True"
    assert "obs: expected shape (1, 4) (batch first), got (1, 3)" in refused


def serves(site, name):
    listed = site.get("/api/cli/v1/inference/deployments/list")
    return next((d for d in listed if d["name"] == name and d.get("url")), None)
