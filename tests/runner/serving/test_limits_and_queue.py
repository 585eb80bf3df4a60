"""How much one deployment is asked at a time, what waits, what is refused, and what Prometheus is told of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

openai = pytest.importorskip("openai")

LONG = {"prompt": "ab", "temperature": 0, "max_tokens": 900, "stream": True}
SHORT = {"prompt": "ab", "temperature": 0, "max_tokens": 4}


@pytest.fixture
def figures(plane):
    """Samples of /metrics about inference: {(name, outcome or le …): value} of the deployment `maths`."""

    def read():
        with plane.http("viewer") as http:
            text = http.get("/metrics").text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        ours = [s for s in samples if s.labels.get("deployment") == "maths" and "le" not in s.labels]
        return {(s.name.removeprefix("arena_inference_"), s.labels.get("outcome")): s.value for s in ours}

    return read


@pytest.fixture
def busy(plane, openai_client):
    """`maths` answers one request at a time, one more may wait; one long stream is under way until it is closed."""
    plane.deploy("maths", "maths@1", spec={"limits": {"concurrent": 1, "queue": 1}})
    with openai_client.completions.create(model="maths", **LONG) as stream:
        next(iter(stream))
        yield stream


def test_what_finds_the_queue_full_is_told_when_to_come_back(busy, openai_client, figures, until):
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(openai_client.completions.create, model="maths", **SHORT)
        until(lambda: figures()["waiting", None] == 1)
        with pytest.raises(openai.RateLimitError, match="answers 1 requests at a time and 1 wait") as caught:
            openai_client.completions.create(model="maths", **SHORT)
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
        busy.close()
        assert waits.result(30).usage.completion_tokens > 0
    assert figures()["requests_total", "refused"] == 1


def test_the_published_protocol_is_refused_with_the_same_header(busy, plane, openai_client, figures, until):
    with ThreadPoolExecutor() as threads:
        threads.submit(openai_client.completions.create, model="maths", **SHORT)
        until(lambda: figures()["waiting", None] == 1)
        answer = plane.http().post("/i/maths/generate", json={"prompts": ["hi"]})
        assert (answer.status_code, answer.json()["code"]) == (429, "too-many-requests")
        assert int(answer.headers["retry-after"]) >= 1
        busy.close()


def test_a_caller_who_hung_up_while_waiting_leaves_no_place_taken(busy, plane, figures, until):
    with plane.http() as http, pytest.raises(Exception, match="timed out"):
        http.post("/i/maths/generate_stream", json={"prompt": "hi"}, timeout=0.5)
    busy.close()
    until(lambda: (figures()["active", None], figures()["waiting", None]) == (0, 0))
    assert plane.http().post("/i/maths/generate", json={"prompts": ["hi"]}).status_code == 200


def test_requests_tokens_and_first_tokens_are_counted(plane, openai_client, figures):
    plane.deploy("maths", "maths@1")
    whole = openai_client.completions.create(model="maths", **SHORT)
    list(openai_client.completions.create(model="maths", stream=True, **SHORT))
    found = figures()
    assert found["requests_total", "ok"] == 2
    assert found["tokens_total", None] == 2 * whole.usage.completion_tokens
    assert found["first_token_seconds_count", None] == 1
    assert found["tokens_per_second", None] == pytest.approx(2 * whole.usage.completion_tokens / 60)


def test_what_the_caller_did_wrong_is_no_failure_of_the_revision(plane, figures):
    plane.deploy("maths", "maths@1")
    answer = plane.http().post("/i/maths/generate", json={"prompts": ["x" * 5000]})
    assert answer.status_code == 422
    assert figures()["requests_total", "rejected"] == 1
    assert plane.world.links.traffic.tally(("main", "maths"), 1).requests == 0
