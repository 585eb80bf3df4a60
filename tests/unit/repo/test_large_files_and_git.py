"""Whether git would store other bytes: our answer in one pass is git's own, for files of every kind."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_gitops.repo import conversion
from arena_gitops.repo.git import checkout

CONTENTS = {
    "plain": b"question,answer\n1,2\n",
    "windows": b"question,answer\r\n1,2\r\n",
    "mixed": b"a\r\nb\n",
    "binary": b"PAR1\x00\r\n\x01",
    "mac": b"a\rb\r\nc\n",
    "keyword": b"# $Id: 4711 $\n1,2\n",
    "empty": b"",
    "cut": b"1,2\r",
}
ATTRIBUTES = [
    "",
    "text",
    "-text",
    "text=auto",
    "eol=lf",
    "text=auto eol=crlf",
    "ident",
    "crlf",
    "-crlf",
    "binary",
    "filter=none",
]


def git(root, *args):
    done = subprocess.run(["git", "-C", root, *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    git(root, "init", "-q")
    for name, content in CONTENTS.items():
        (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("autocrlf", ["false", "input"])
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_it_is_what_git_says(root, attribute, autocrlf):
    (root / ".gitattributes").write_text(f"* {attribute}\n" if attribute else "")
    git(root, "config", "core.autocrlf", autocrlf)
    here = checkout(root)
    for name in CONTENTS:
        stored = {git(root, "hash-object", flag, name) for flag in ("--no-filters", f"--path={name}")}
        found = conversion.scan(root / name)
        assert here.converts(name, found) is (len(stored) == 2), name


def test_a_filter_of_the_user_is_taken_to_do_something(root):
    (root / ".gitattributes").write_text("* filter=mine\n")
    assert not checkout(root).converts("plain", conversion.scan(root / "plain"))
    git(root, "config", "filter.mine.clean", "cat")
    assert checkout(root).converts("plain", conversion.scan(root / "plain"))


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"a", b"$Id", b": x$", b"\0"]), max_size=12), st.integers(4, 7)
)
@settings(max_examples=300, deadline=None)
def test_where_a_piece_ends_makes_no_difference(tmp_path_factory, parts, size):
    content = b"".join(parts)
    place = tmp_path_factory.getbasetemp() / "content"
    place.write_bytes(content)
    whole = conversion.scan(place)
    usual, conversion.CHUNK = conversion.CHUNK, size
    try:
        assert conversion.scan(place) == whole
    finally:
        conversion.CHUNK = usual
    pairs = content.count(b"\r\n")
    assert whole.crlf is (pairs > 0)
    assert whole.binary is (b"\0" in content or content.count(b"\r") > pairs)
    assert whole.keyword is (b"$Id:" in content)
