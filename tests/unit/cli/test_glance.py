"""A plan that is answered from the last time says what a plan made anew would say, or it is made anew."""

import itertools
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from repos import commit, git, put, write

from arena_gitops.cli.main import run
from arena_gitops.plan.offline import assumed
from arena_gitops.repo.load import load
from arena_gitops.spec.wire import StateDocument

SERIAL = itertools.count(1)


class Server:
    """Knows one state; counts how often it had to send it."""

    def __init__(self):
        self.body, self.etag, self.sent, self.tokens = b"", "", 0, set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.tokens.add(self.headers.get("Authorization"))
                same = self.headers.get("If-None-Match") == f'"{outer.etag}"'
                if not same:
                    outer.sent += 1
                self.send_response(304 if same else 200)
                self.end_headers()
                if not same:
                    self.wfile.write(outer.body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def has(self, root, etag):
        """What the repository says now has been applied."""
        observed = assumed(load(root))
        resources = tuple(d.model_copy(update={"version": 1}) for d in observed.resources.values())
        document = StateDocument(
            platform="test",
            version="test",
            lineage="test",
            etag=etag,
            resources=resources,
            runs=tuple(observed.runs.values()),
            algorithms=("GRPO", "SFT"),
        )
        self.body, self.etag = document.model_dump_json().encode(), etag


@pytest.fixture(scope="module")
def server():
    found = Server()
    yield found
    found.server.shutdown()


@pytest.fixture
def place(tmp_path, monkeypatch, server):
    """A committed repository that has been applied, and somebody with an empty cache in it."""
    root = commit(write(tmp_path / "repository", stack="team"))
    for name in ("CI", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARENA_BASE_URL", server.url)
    monkeypatch.setenv("ARENA_API_KEY", "key")
    monkeypatch.chdir(root)
    server.has(root, "one")
    server.sent = 0
    return root


@pytest.fixture
def apply(place, server):
    """The platform becomes what the repository says."""
    return lambda: server.has(place, f"applied-{next(SERIAL)}")


@pytest.fixture
def caching(tmp_path, monkeypatch):
    """Use another cache."""
    return lambda name: monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))


@pytest.fixture
def plan(capsys):
    def call(*args):
        code = run(["plan", *args])
        return code, capsys.readouterr().out

    return call


def test_the_same_question_is_answered_without_the_state_being_sent(place, plan, server):
    first = plan()
    assert "No changes" in first[1]
    assert plan() == first
    assert plan() == first
    assert server.sent == 1
    assert server.tokens == {"Bearer key"}


def test_another_question_has_its_own_answer(place, plan, server):
    plan()
    code, out = plan("--json")
    assert (code, json.loads(out)["kind"]) == (0, "arena.plan")
    assert plan("--json") == (code, out)
    assert server.sent == 2


def test_what_changed_is_planned_and_never_kept(place, plan, server):
    plan()
    put(place, {"deployments/e0.yaml": "kind: Deployment\nname: e0\nexperiment: e1\n"})
    for _ in range(2):
        assert "deployment/e0" in plan()[1]
    git(place, "checkout", "--quiet", ".")
    assert "No changes" in plan()[1]


def test_a_state_that_moved_is_looked_at(place, plan, server):
    plan()
    server.etag = "two"
    server.body = server.body.replace(b'"etag":"one"', b'"etag":"two"').replace(
        b"an experiment", b"another one"
    )
    assert "description" in plan()[1]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"text": 3}', b"\xff\xfe", b'{"where": {}, "text": "lie"}']
)
def test_a_damaged_entry_is_ignored_and_replaced(place, plan, server, tmp_path, damage):
    first = plan()
    (entry,) = (tmp_path / "cache" / "arena-gitops" / "plans").glob("*.json")
    entry.write_bytes(damage)
    assert plan() == first
    assert json.loads(entry.read_text())["text"] == first[1]


def test_an_entry_that_names_another_server_gets_no_token(place, plan, tmp_path, scripted):
    scripted.will((304, b"", {}))
    first = plan()
    (entry,) = (tmp_path / "cache" / "arena-gitops" / "plans").glob("*.json")
    kept = json.loads(entry.read_text())
    kept["where"]["url"] = scripted.url
    entry.write_text(json.dumps(kept | {"text": "a lie"}))
    assert plan() == first
    assert scripted.asked == []


def test_a_cache_that_cannot_be_written_is_no_trouble(place, plan, server, tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    assert plan() == plan()
    assert server.sent == 2


def test_the_oldest_answers_go_when_there_are_too_many(place, plan, tmp_path, monkeypatch):
    monkeypatch.setattr("arena_gitops.cli.glance.MOST_KEPT_BYTES", 1500)
    for number in range(6):
        plan("--namespace", "main", *["--detailed-exitcode"] * number)
        time.sleep(0.01)
    kept = list((tmp_path / "cache" / "arena-gitops" / "plans").glob("*.json"))
    assert sum(path.stat().st_size for path in kept) <= 1500
    assert kept


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_with_the_cache_equals_one_without(place, plan, apply, caching, seed):
    """Any edits, reverts, commits, and applies in any order."""
    chance = random.Random(seed)

    def edit():
        name = chance.choice(["experiments/e0.yaml", "manifests/e1.yaml", "rewards/sums.py", "data/sums.csv"])
        text = (place / name).read_text()
        put(
            place,
            {name: text + "\n" if chance.random() < 0.5 else text.replace("40", "41").replace("64", "65")},
        )

    def add():
        put(
            place,
            {
                "experiments/note.txt": str(chance.random()),
                "rewards/more.py": "def reward(q, a, c):\n    return 1.0\n",
            },
        )

    steps = [
        edit,
        add,
        apply,
        lambda: commit(place),
        lambda: git(place, "checkout", "--quiet", "."),
        lambda: None,
    ]
    for number in range(10):
        chance.choice(steps)()
        caching("cache")
        cached = plan("--detailed-exitcode")
        caching(f"empty-{number}")
        assert plan("--detailed-exitcode") == cached


def test_files_that_git_overlooks_have_no_survey(place, plan, server):
    plan()
    git(place, "update-index", "--assume-unchanged", "experiments/e0.yaml")
    text = (place / "experiments/e0.yaml").read_text()
    put(place, {"experiments/e0.yaml": text.replace("an experiment", "unseen")})
    assert "description" in plan()[1]


def test_a_link_has_no_survey(place, plan, server):
    (place / "rewards/linked.py").symlink_to("sums.py")
    commit(place)
    plan()
    plan()
    assert server.sent == 2
