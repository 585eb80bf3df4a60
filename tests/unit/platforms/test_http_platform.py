"""Routes and bodies of the native API, as the adapter sends and reads them."""

from __future__ import annotations

import hashlib
import json

import pytest

from arena_gitops.errors import PlatformError, StaleError
from arena_gitops.platforms.door import Door
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import CheckRequest, Owner, PutResource, StateDocument
from arena_gitops.state import Blob

OWNER = Owner(stack="team")
FP = fingerprint({"a": 1}, {})


@pytest.fixture
def platform(scripted):
    platform = HttpPlatform(scripted.url, door=Door(scripted.url, "t", attempts=2, backoff_s=0.001))
    yield platform
    platform.close()


def resource_json(name: str = "gsm8k", etag: str = "e1") -> dict:
    return {
        "kind": "dataset",
        "name": name,
        "etag": etag,
        "owner": {"stack": "team", "namespace": "main"},
        "spec": {"rows": 1},
        "fingerprint": FP.model_dump(),
    }


def state_json(etag: str) -> bytes:
    document = {
        "platform": "http",
        "version": "0.1.0",
        "lineage": "L",
        "etag": etag,
        "resources": [resource_json()],
        "foreign": ["reward/theirs other-team"],
        "algorithms": ["GRPO"],
    }
    return StateDocument.model_validate(document).model_dump_json().encode()


def test_observing_twice_sends_the_state_once(platform, scripted):
    scripted.will((200, state_json("s1"), {}), (304, b"", {}))
    first = platform.observe(OWNER)
    assert platform.observe(OWNER) == first
    assert scripted.asked[1].headers["if-none-match"] == '"s1"'
    assert scripted.asked[0].path == "/api/v1/state?stack=team&namespace=main"


def test_an_observed_state_is_keyed_by_address(platform, scripted):
    scripted.will((200, state_json("s1"), {}))
    observed = platform.observe(OWNER)
    assert observed.resources[Address("dataset", "gsm8k")].etag == "e1"
    assert observed.foreign == {Address("reward", "theirs"): "other-team"}
    assert observed.algorithms == ("GRPO",)


@pytest.mark.parametrize(
    ("etag", "header", "value"), [(None, "if-none-match", "*"), ("e1", "if-match", '"e1"')]
)
def test_a_put_says_what_it_expects_to_find(platform, scripted, etag, header, value):
    scripted.will((503, b"", {}), (200, json.dumps(resource_json(etag="e2")).encode(), {}))
    body = PutResource(owner=OWNER, spec={"rows": 1}, fingerprint=FP)
    answer = platform.put(Address("dataset", "gsm8k"), body, etag=etag, idempotency_key="k1")
    assert answer.etag == "e2"
    for asked in scripted.asked:  # also the repeat after a gateway's refusal
        assert asked.headers[header] == value
        assert asked.headers["idempotency-key"] == "k1"
        assert PutResource.model_validate_json(asked.body) == body


def test_a_file_is_streamed_whole_again_after_a_failed_attempt(platform, scripted, tmp_path):
    content = bytes(range(256)) * 8192
    (tmp_path / "data.csv").write_bytes(content)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    scripted.will((502, b"", {}), (201, b"", {}))
    platform.upload(Blob(digest, tmp_path / "data.csv", len(content)))
    assert [asked.body == content for asked in scripted.asked] == [True, True]
    assert scripted.asked[0].path == f"/api/v1/blobs/{digest}"


def test_bytes_that_git_would_store_are_sent_instead_of_those_on_disk(platform, scripted, tmp_path):
    scripted.will((201, b"", {}))
    platform.upload(Blob("sha256:" + "a" * 64, tmp_path / "never-read", 4, data=b"a\nb\n"))
    assert scripted.asked[0].body == b"a\nb\n"


def test_a_file_that_changed_since_it_was_read_is_not_sent(platform, scripted, tmp_path):
    (tmp_path / "data.csv").write_bytes(b"longer than before")
    with pytest.raises(StaleError, match=r"data\.csv has changed since it was read"):
        platform.upload(Blob("sha256:" + "a" * 64, tmp_path / "data.csv", 3))
    assert scripted.asked == []


def test_only_blobs_the_server_lacks_are_missing(platform, scripted):
    scripted.will((200, b"", {}), (404, b"", {}))
    assert platform.missing_blobs(["sha256:" + "a" * 64, "sha256:" + "b" * 64]) == {"sha256:" + "b" * 64}
    assert [asked.method for asked in scripted.asked] == ["HEAD", "HEAD"]


def test_retiring_what_is_gone_is_no_error(platform, scripted):
    scripted.will((404, b"", {}))
    platform.retire(Address("reward", "gsm8k"), OWNER, etag="e1")
    assert scripted.asked[0].path == "/api/v1/resources/reward/gsm8k?stack=team&namespace=main&mode=retire"
    assert scripted.asked[0].headers["if-match"] == '"e1"'


CHECK = b'{"type":"check","address":"reward/r","name":"imports","status":"pass"}\n'
SUMMARY = b'{"type":"summary","passed":1,"warned":0,"failed":0}\n'
REQUEST = CheckRequest(address="experiment/e", manifest={}, inputs=JobInputs())


def test_checks_arrive_one_by_one_until_the_summary(platform, scripted):
    scripted.will((200, CHECK + SUMMARY, {}))
    assert [result.name for result in platform.check(REQUEST)] == ["imports"]


def test_checks_without_a_summary_are_never_a_pass(platform, scripted):
    scripted.will((200, CHECK, {}))
    with pytest.raises(PlatformError, match="ended before their summary"):
        list(platform.check(REQUEST))


def test_events_are_asked_for_after_the_last_one_known(platform, scripted):
    event = {"type": "log", "seq": 3, "ts": 1.0, "level": "info", "message": "hello"}
    scripted.will((200, json.dumps({"index": 8, "segment": 0, "event": event}).encode() + b"\n", {}))
    [stored] = platform.run_events("r_1", after=7)
    assert (stored.index, stored.event.message) == (8, "hello")
    assert scripted.asked[0].path == "/api/v1/runs/r_1/events?after=7"


def test_an_answer_of_another_version_is_said_to_be_one(platform, scripted):
    scripted.will((200, b'{"run_id": 7}', {}))
    with pytest.raises(PlatformError, match=r"GET /api/v1/runs/r_1 .* another version\?"):
        platform.run_status("r_1")


def test_generated_text_arrives_as_it_was_sent(platform, scripted):
    scripted.will((200, "42 ≠ 43".encode(), {"Content-Type": "text/plain; charset=utf-8"}))
    assert "".join(platform.generate_stream("gsm8k", "6*7?", {"max_new_tokens": 4})) == "42 ≠ 43"
    assert scripted.asked[0].path == "/i/gsm8k/generate_stream"
    assert json.loads(scripted.asked[0].body) == {"prompt": "6*7?", "params": {"max_new_tokens": 4}}


def test_an_error_in_the_stream_is_an_error_and_no_text(platform, scripted):
    scripted.will((200, b"\n[ERROR: out of memory]", {"Content-Type": "text/plain"}))
    with pytest.raises(PlatformError, match="deployment gsm8k: out of memory"):
        list(platform.generate_stream("gsm8k", "x"))
