"""The unmodified `openai` package against the control plane."""

from __future__ import annotations

import httpx
import pytest

openai = pytest.importorskip("openai")

GREEDY = {"temperature": 0, "max_tokens": 24}
MESSAGES = [{"role": "user", "content": "2 and 2"}]
LABEL = "maths@1 step_96/m1 run-1"


def test_models_lists_what_serves(plane, openai_client):
    plane.deploy("maths", "maths@1")
    plane.deploy("later", "maths@2", state="loading")
    assert [model.id for model in openai_client.models.list()] == ["maths"]
    assert openai_client.models.retrieve("maths").model_extra["arena"]["checkpoint"] == "step_96/m1"


def test_a_preview_answers_by_its_namespace_and_name(plane, openai_client):
    plane.deploy("maths", "maths@1")
    plane.deploy("maths", "maths@2", namespace="pr-7")
    chats = openai_client.chat.completions
    said = {
        name: chats.create(model=name, messages=MESSAGES, **GREEDY).choices[0].message.content
        for name in ("maths", "pr-7--maths", "pr-7/maths")
    }
    assert said["pr-7--maths"] == said["pr-7/maths"] != said["maths"]
    with plane.http() as http:
        assert http.get("/i/pr-7--maths/status").json()["instance_id"] == "maths@1"
        assert http.get("/i/pr-8--maths/status").status_code == 404


def test_a_chat_is_answered_as_the_published_protocol_answers_the_same_prompt(plane, openai_client):
    plane.deploy("maths", "maths@1")
    done = openai_client.chat.completions.create(model="maths", messages=MESSAGES, **GREEDY)
    body = {"prompts": ["2 and 2"], "params": {"temperature": 0, "max_new_tokens": 24}}
    plain = plane.http().post("/i/maths/generate", json=body).json()["results"][0]["completion"]
    assert done.choices[0].message.content == plain
    assert done.system_fingerprint == LABEL
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    assert done.choices[0].finish_reason in {"stop", "length"}


def test_a_streamed_chat_joins_to_the_whole_and_ends_with_usage(plane, openai_client):
    plane.deploy("maths", "maths@1")
    whole = openai_client.chat.completions.create(model="maths", messages=MESSAGES, **GREEDY)
    stream = openai_client.chat.completions.create(
        model="maths", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage


def test_completions_continue_raw_text_and_n_counts_its_prompt_once(plane, openai_client):
    plane.deploy("maths", "maths@1")
    one = openai_client.completions.create(model="maths", prompt="Hello", **GREEDY)
    two = openai_client.completions.create(model="maths", prompt="Hello", n=2, **GREEDY)
    assert [choice.text for choice in two.choices] == [one.choices[0].text] * 2
    assert two.usage.prompt_tokens == one.usage.prompt_tokens == 5
    streamed = openai_client.completions.create(model="maths", prompt="Hello", stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in streamed) == one.choices[0].text


def test_a_seed_makes_samples_repeatable(plane, openai_client):
    plane.deploy("maths", "maths@1")
    asked = {"model": "maths", "messages": MESSAGES, "max_tokens": 24, "seed": 5, "n": 2}
    first, second = (openai_client.chat.completions.create(**asked) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert texts[0] != texts[1]


def test_an_unknown_model_is_the_clients_not_found_error(plane, openai_client):
    with pytest.raises(openai.NotFoundError, match="deployment nothing does not exist"):
        openai_client.chat.completions.create(model="nothing", messages=MESSAGES)


def test_a_model_that_is_loading_says_when_to_come_back(plane, openai_client):
    plane.deploy("maths", "maths@1", state="loading")
    with pytest.raises(openai.InternalServerError) as caught:
        openai_client.chat.completions.create(model="maths", messages=MESSAGES)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.type == "overloaded_error"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "not supported: tools"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs: true"),
        ({"presence_penalty": 0.5}, "not supported: presence_penalty"),
        ({"temperature": 3}, "temperature"),
        ({"n": 2, "stream": True}, "n > 1 is not supported together with stream"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "image_url",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(plane, openai_client, more, said):
    plane.deploy("maths", "maths@1")
    with pytest.raises(openai.BadRequestError, match=said):
        openai_client.chat.completions.create(**{"model": "maths", "messages": MESSAGES, **more})


def test_a_wrong_key_is_the_clients_authentication_error(plane):
    client = openai.OpenAI(base_url=f"{plane.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.models.list()
    assert httpx.get(f"{plane.url}/v1/models").json()["error"]["type"] == "authentication_error"


def test_a_chat_tells_the_log_probability_of_every_token_and_of_its_rivals(plane, openai_client):
    plane.deploy("maths", "maths@1")
    asked = {"model": "maths", "messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **GREEDY}
    done = openai_client.chat.completions.create(**asked).choices[0]
    told = done.logprobs.content
    assert all(entry.logprob == max(o.logprob for o in entry.top_logprobs) for entry in told)  # greedy
    assert {len(entry.top_logprobs) for entry in told} == {3}
    stream = openai_client.chat.completions.create(stream=True, **asked)
    chunks = [chunk.choices[0] for chunk in stream if chunk.choices]
    streamed = [entry.logprob for chunk in chunks if chunk.logprobs for entry in chunk.logprobs.content]
    assert streamed == pytest.approx([entry.logprob for entry in told], abs=1e-5)


def test_the_told_log_probabilities_are_those_that_a_probe_measures(plane, openai_client, maths_models):
    plane.deploy("maths", "maths@1")
    done = openai_client.completions.create(model="maths", prompt="ab", logprobs=1, **GREEDY).choices[0]
    body = {"adapter": "maths@1", "prompt_ids": [68, 69], "token_ids": [68]}
    assert maths_models.http.post("/logprobs", json=body).status_code == 200
    assert len(done.logprobs.tokens) == len(done.logprobs.token_logprobs) == len(done.logprobs.text_offset)
    assert all(value <= 0 for value in done.logprobs.token_logprobs)


def test_a_revision_answers_to_its_number_for_as_long_as_it_is_loaded(plane, openai_client):
    plane.deploy("maths", "maths@1", number=1, state="superseded")
    plane.deploy("maths", "maths@2", number=2)
    plane.deploy("maths", "maths@1", number=3, state="failed", serving=2)

    def fingerprint(model):
        done = openai_client.chat.completions.create(model=model, messages=MESSAGES, **GREEDY)
        return done.system_fingerprint.split()[0]

    assert [fingerprint(name) for name in ("maths", "maths@1", "maths@2")] == [
        "maths@2",
        "maths@1",
        "maths@2",
    ]
    with pytest.raises(
        openai.NotFoundError, match="revision 3 of deployment maths is not loaded; loaded: maths@1, "
    ):
        fingerprint("maths@3")


def test_a_model_says_which_run_step_and_commit_it_is(plane, openai_client):
    plane.deploy("maths", "maths@1", commit="c0ffee" * 6)
    about = openai_client.models.retrieve("maths").model_extra["arena"]
    assert (
        about.items() >= {"immutable": "maths@1", "run": "run-1", "step": 96, "commit": "c0ffee" * 6}.items()
    )
    done = openai_client.chat.completions.with_raw_response.create(model="maths", messages=MESSAGES, **GREEDY)
    assert done.headers["x-arena-served-by"] == done.parse().system_fingerprint == f"{LABEL} c0ffeec0ffee"
