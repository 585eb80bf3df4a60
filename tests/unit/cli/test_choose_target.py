"""Which server a command speaks to, and which token it may show it."""

from __future__ import annotations

import json

import pytest

from arena_gitops.cli.credentials import origin, token_for
from arena_gitops.cli.target import choose, connect
from arena_gitops.errors import AuthError, UsageError
from arena_gitops.platforms.absent import AbsentPlatform
from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_gitops.state import TargetSpec

PROD = "https://arena.example.org"
TARGETS = {
    "local": TargetSpec("local", "local", options={"runner": "/opt/arena-runner"}),
    "prod": TargetSpec("prod", "http", PROD),
    "hosted": TargetSpec("hosted", "arena_cloud"),
    "other": TargetSpec("other", "slurm"),
}
HOSTED = "https://arena.agilerl.com"
BASE = {"ARENA_BASE_URL": "https://other.example.org"}


@pytest.mark.parametrize(
    ("flag", "environ", "default", "expected"),
    [
        ("prod", BASE, "local", PROD),
        ("hosted", {}, "local", HOSTED),
        ("https://x.example.org", BASE, "local", "https://x.example.org"),
        ("local", BASE, "prod", None),
        (None, BASE, "prod", "https://other.example.org"),
        (None, {}, "prod", PROD),
        (None, {}, "local", None),
        (None, {}, None, None),
    ],
)
def test_flag_then_environment_then_default_target_then_local(flag, environ, default, expected):
    assert choose(flag, environ, TARGETS, default).url == expected


def test_the_local_target_keeps_its_options_when_nobody_chose_it():
    assert choose(None, {}, TARGETS, None).options == {"runner": "/opt/arena-runner"}


def test_an_unknown_target_suggests_the_nearest():
    with pytest.raises(UsageError, match="no target 'prd'; did you mean prod"):
        choose("prd", {}, TARGETS, None)


def test_a_platform_without_an_adapter_is_refused_by_name():
    with pytest.raises(UsageError, match="slurm"):
        choose("other", {}, TARGETS, None)


@pytest.mark.parametrize(
    ("flag", "environ", "expected"),
    [
        ("hosted", {}, "arena_cloud"),
        (HOSTED, {}, "arena_cloud"),
        (None, {"ARENA_BASE_URL": f"{HOSTED}/"}, "arena_cloud"),
        (None, BASE, "http"),
        ("prod", {}, "http"),
    ],
)
def test_an_address_of_hosted_arena_is_spoken_to_in_its_protocol(flag, environ, expected):
    assert choose(flag, environ, TARGETS, None).platform == expected


def test_a_hosted_target_gets_the_key_of_its_origin_only(tmp_path):
    environ = {"HOME": str(tmp_path), "ARENA_API_KEY": "key"}
    platform = connect(choose("hosted", environ, TARGETS, None), environ, say=print, book={})
    assert isinstance(platform, ArenaCloudPlatform)
    assert platform.url == HOSTED
    platform.close()
    for asked in (choose(None, environ, TARGETS, "hosted"), choose("hosted", environ | BASE, TARGETS, None)):
        with pytest.raises(AuthError, match="ARENA_API_KEY is only for"):
            connect(asked, environ | (BASE if asked.chosen_by == "flag" else {}), say=print, book={})


@pytest.mark.parametrize("default", [None, "local"])
def test_in_ci_the_local_server_must_be_asked_for(default):
    with pytest.raises(UsageError, match="--target local") as caught:
        choose(None, {"CI": "true"}, TARGETS, default)
    assert caught.value.exit_code == 64
    assert choose("local", {"CI": "true"}, TARGETS, default).is_local
    assert choose(None, {"CI": "true"}, TARGETS, "prod").url == PROD


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Arena.Example.org/api", PROD),
        ("https://arena.example.org:443", PROD),
        ("http://arena.example.org:8080/", "http://arena.example.org:8080"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_has_one_spelling(url, expected):
    assert origin(url) == expected


def keep(home, credentials, mode=0o600):
    folder = home / ".config" / "arena-gitops"
    folder.mkdir(parents=True)
    (folder / "credentials.json").write_text(json.dumps(credentials))
    (folder / "credentials.json").chmod(mode)
    return {"HOME": str(home)}


def test_a_kept_token_goes_to_its_origin_only(tmp_path):
    environ = keep(tmp_path, {PROD: {"token": "kept"}})
    assert token_for(f"{PROD}/", environ, key_allowed=False) == "kept"
    with pytest.raises(AuthError, match=r"no token for https://evil\.example\.org"):
        token_for("https://evil.example.org", environ, key_allowed=False)


def test_the_key_goes_to_an_explicit_target_without_a_base_url(tmp_path):
    environ = {"HOME": str(tmp_path), "ARENA_API_KEY": "key"}
    assert token_for(PROD, environ, key_allowed=True) == "key"


def test_the_key_never_leaves_the_origin_of_the_base_url(tmp_path):
    environ = {"HOME": str(tmp_path), "ARENA_API_KEY": "key", "ARENA_BASE_URL": PROD}
    assert token_for(PROD, environ, key_allowed=True) == "key"
    with pytest.raises(AuthError, match="ARENA_API_KEY is only for"):
        token_for("https://evil.example.org", environ, key_allowed=True)


def test_a_url_that_only_the_repository_names_never_sees_the_key(tmp_path):
    environ = {"HOME": str(tmp_path), "ARENA_API_KEY": "key"}
    choice = choose(None, environ, TARGETS, "prod")
    with pytest.raises(AuthError, match="ARENA_API_KEY is only for"):
        connect(choice, environ, say=print)


def test_tokens_that_others_can_read_are_refused(tmp_path):
    environ = keep(tmp_path, {PROD: {"token": "kept"}}, mode=0o644)
    with pytest.raises(AuthError, match="chmod 600"):
        token_for(PROD, environ, key_allowed=False)


def test_a_broken_credentials_file_is_refused_without_quoting_it(tmp_path):
    environ = keep(tmp_path, {PROD: "se-cret"})
    with pytest.raises(AuthError, match="cannot be read") as caught:
        token_for(PROD, environ, key_allowed=False)
    assert "se-cret" not in str(caught.value)


def test_a_remote_target_is_reached_with_its_token(tmp_path):
    environ = {"HOME": str(tmp_path), "ARENA_API_KEY": "key"}
    platform = connect(choose("prod", environ, TARGETS, None), environ, say=print)
    assert isinstance(platform, HttpPlatform)
    assert platform.url == PROD
    platform.close()


def test_looking_at_a_local_server_that_never_was_starts_and_writes_nothing(tmp_path):
    home = tmp_path / "none"
    platform = connect(choose(None, {}, {}, None), {"ARENA_HOME": str(home)}, say=print)
    assert isinstance(platform, AbsentPlatform)
    observed = platform.observe(Owner(stack="team"))
    assert Address("dataset", "x") not in observed.resources
    assert observed.algorithms is None
    assert {tier.credits_per_node_hour for tier in observed.tiers.values()} <= {0.0}, "this machine is free"
    assert not home.exists()
