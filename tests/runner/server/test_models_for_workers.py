"""Base models through the server: who may read which files, in ranges, and what a worker makes of them."""

import os
import time
from dataclasses import replace

import httpx
import pytest
from pool import Pool, code, digest_of, pull_tier
from starlette.testclient import TestClient

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.worker import ModelFile
from arena_runner.model_cache import models_folder
from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.settings import TierFile
from arena_runner.server_link import RefusedError, ServerLink, UnreachableError

WEIGHTS = bytes(range(256)) * 40
LISTED = {"config.json": b"{}", "model.safetensors": WEIGHTS, "tokenizer.json": b"[]"}


@pytest.fixture
def pool(world, monkeypatch):
    monkeypatch.delenv("ARENA_MODELS_DIR", raising=False)
    made = replace(world, tiers=TierFile(tiers=(pull_tier(),)))
    with TestClient(create_app(made)) as http:
        yield Pool(made, http)


@pytest.fixture
def folder(pool):
    """The model that the experiments of this folder's tests name."""
    made = pool.world.home.models / "tiny"
    made.mkdir()
    for name, data in LISTED.items():
        (made / name).write_bytes(data)
    return made


@pytest.fixture
def worker(pool, build):
    pool.submit(build.experiment())
    made = pool.worker()
    made.take()
    return made


def get(worker, path, **headers):
    return worker.ask("GET", f"/api/v1/models/{path}", worker.claim["token"], headers=headers)


def test_a_listing_names_every_file_with_its_digest(worker, folder):
    listing = get(worker, "tiny@main/").json()
    assert [(f["path"], f["size"], f["digest"]) for f in listing["files"]] == [
        (name, len(data), digest_of(data)) for name, data in LISTED.items()
    ]


def test_a_changed_file_is_another_model(worker, folder):
    before = get(worker, "tiny@main/").json()["digest"]
    (folder / "config.json").write_text('{"n": 1}')
    assert get(worker, "tiny@main/").json()["digest"] != before


def test_a_broken_download_goes_on_where_it_broke_off(worker, folder):
    whole = get(worker, "tiny@main/model.safetensors")
    assert (whole.status_code, whole.content) == (200, WEIGHTS)
    tag = whole.headers["etag"]
    assert tag == f'"{digest_of(WEIGHTS)}"'
    rest = get(worker, "tiny@main/model.safetensors", **{"Range": "bytes=10000-", "If-Range": tag})
    assert (rest.status_code, rest.content) == (206, WEIGHTS[10000:])
    other = get(
        worker, "tiny@main/model.safetensors", **{"Range": "bytes=10000-", "If-Range": '"sha256:other"'}
    )
    assert (other.status_code, other.content) == (200, WEIGHTS)


@pytest.mark.parametrize(
    "path",
    [
        "tiny@main/../../settings.yaml",
        "tiny@main/%2e%2e/%2e%2e/settings.yaml",
        "tiny@main/..",
        "tiny@main//etc/passwd",
        "tiny@main/sub/config.json",
        "tiny@main/pytorch_model.bin",
        "tiny@main/out.json",
        "tiny@main/absent.json",
        "tiny@main",
        "tiny",
    ],
)
def test_nothing_but_listed_files_can_be_read(worker, folder, path, tmp_path):
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "sub").mkdir()
    (folder / "sub" / "config.json").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "out.json").symlink_to(tmp_path / "secret.json")
    assert get(worker, path).status_code == 404
    assert [f["path"] for f in get(worker, "tiny@main/").json()["files"]] == list(LISTED)


@pytest.mark.parametrize("name", ["../models/tiny", "..", ".", "/etc", "tiny/../tiny", "a\\b"])
def test_a_name_cannot_leave_the_models_folder(pool, folder, name):
    headers = {"Authorization": f"Bearer {issue(pool.world, Role.ADMIN, 'me')}"}
    quoted = httpx.URL(path=name).raw_path.decode().replace("/", "%2F")
    assert pool.http.get(f"/api/v1/models/{quoted}@main/", headers=headers).status_code == 404


def test_a_worker_reads_the_model_of_the_job_it_holds_and_no_other(pool, worker, folder):
    other = pool.world.home.models / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    assert get(worker, "other@main/").status_code == 403
    worker.hand_back()
    assert (get(worker, "tiny@main/").status_code, code(get(worker, "tiny@main/"))) == (409, "fenced")


def test_links_within_the_models_folder_are_followed_as_the_hubs_cache_makes_them(pool, worker):
    blobs, made = pool.world.home.models / "blobs", pool.world.home.models / "tiny"
    blobs.mkdir()
    made.mkdir()
    (blobs / "abc").write_text("{}")
    (made / "config.json").symlink_to(blobs / "abc")
    assert get(worker, "tiny@main/config.json").text == "{}"


def link_of(pool, worker):
    """The worker's own link, over the same app."""
    transport = httpx.MockTransport(lambda request: forwarded(pool, request))
    link = ServerLink("http://server", worker.token, transport=transport)
    link._pass = {"Authorization": f"Bearer {worker.claim['token']}"}
    return link


def forwarded(pool, request):
    answer = pool.http.request(
        request.method, request.url.raw_path.decode(), headers=dict(request.headers), content=request.read()
    )
    return httpx.Response(
        answer.status_code, headers={"etag": answer.headers.get("etag", "")}, content=answer.content
    )


def test_a_worker_gets_a_model_once_and_finds_it_by_its_name(pool, worker, folder, tmp_path):
    link, model = link_of(pool, worker), ModelRef(id="tiny")
    found = models_folder(link, model, tmp_path / "cache", 1)
    assert {path.name: path.read_bytes() for path in (found / "tiny").iterdir()} == LISTED
    (found / "tiny" / "config.json").write_text("touched")
    assert models_folder(link, model, tmp_path / "cache", 1) == found
    assert (found / "tiny" / "config.json").read_text() == "touched"


def test_a_model_the_server_has_not_is_sought_elsewhere(pool, worker, tmp_path):
    assert models_folder(link_of(pool, worker), ModelRef(id="tiny"), tmp_path / "cache", 1) is None


def test_models_nobody_has_used_for_a_month_are_removed(pool, worker, folder, tmp_path):
    cache = tmp_path / "cache"
    for name, days in (("old", 31), ("recent", 29)):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (time.time() - days * 24 * 3600,) * 2)
    found = models_folder(link_of(pool, worker), ModelRef(id="tiny"), cache, 1)
    assert {path.name for path in cache.iterdir()} == {"recent", found.name}


class BrokenLine:
    """A line that breaks after so many bytes, once, and remembers what it was asked."""

    def __init__(self, data, breaks_at):
        self.data, self.left, self.asked = data, breaks_at, []

    def __call__(self, request):
        begin = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.asked.append((begin, request.headers.get("if-range")))
        return httpx.Response(206 if begin else 200, stream=self.stream(begin))

    def stream(self, begin):
        line = self

        class Bytes(httpx.SyncByteStream):
            def __iter__(self):
                for at in range(begin, len(line.data), 1000):
                    if line.left is not None and at >= line.left:
                        line.left = None
                        raise httpx.ReadError("the line broke")
                    yield line.data[at : at + 1000]

        return Bytes()


def test_the_worker_continues_a_file_and_verifies_the_whole(tmp_path):
    line = BrokenLine(WEIGHTS, breaks_at=5000)
    link = ServerLink("http://s", "t", transport=httpx.MockTransport(line))
    file = ModelFile(path="model.safetensors", size=len(WEIGHTS), digest=digest_of(WEIGHTS))
    with pytest.raises(UnreachableError, match="the line broke"):
        link.get_model_file(ModelRef(id="m"), file, tmp_path / "f")
    link.get_model_file(ModelRef(id="m"), file, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == WEIGHTS
    (first, _), (second, tag) = line.asked
    assert (first, tag) == (0, f'"{file.digest}"')
    assert 0 < second <= 5000


def test_a_file_that_is_not_what_the_listing_says_is_refused(tmp_path):
    link = ServerLink("http://s", "t", transport=httpx.MockTransport(BrokenLine(b"other", None)))
    file = ModelFile(path="f", size=len(WEIGHTS), digest=digest_of(WEIGHTS))
    with pytest.raises(RefusedError, match="arrived as"):
        link.get_model_file(ModelRef(id="m"), file, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []
