"""What is kept of an archive, and what is refused."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest
from archives import link, tar_gz

from arena_runner.server import archives
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.refusals import RefusedError


@pytest.fixture
def blobs(tmp_path):
    return BlobStore(tmp_path / "blobs")


def unpacked(blobs, data):
    return archives.unpack(blobs, io.BytesIO(data))


def test_files_are_kept_by_name_and_digest_whatever_their_times(blobs):
    first = unpacked(blobs, tar_gz({"b/env.py": "x = 1\n", "a.txt": "a"}))
    second = unpacked(blobs, tar_gz({"a.txt": "a", "./b/env.py": "x = 1\n"}))

    assert first == second
    assert blobs.existing(first.files["b/env.py"]).read_text() == "x = 1\n"


def test_hidden_and_built_files_are_left_out_and_named(blobs):
    names = [".env", ".git/config", "pkg/__pycache__/a.pyc", "venv/bin/python", "sub/.hidden/x.py"]

    found = unpacked(blobs, tar_gz(dict.fromkeys([*names, "env.py"], "secret")))

    assert list(found.files) == ["env.py"]
    assert set(found.left_out) == set(names)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (tar_gz({"../outside.py": "x"}), "no path inside it"),
        (tar_gz({"/etc/passwd": "x"}), "no path inside it"),
        (tar_gz({"a\\b.py": "x"}), "no path inside it"),
        (tar_gz({"a": "x"}, [link("b", "/etc/passwd")]), "a link or a device"),
        (tar_gz({"a": "x"}, [link("b", "a", tarfile.LNKTYPE)]), "a link or a device"),
        (tar_gz({"a": "x"}, [link("b", "", tarfile.FIFOTYPE)]), "a link or a device"),
        (tar_gz({"a": "x"}, [tarfile.TarInfo("a")]), "twice"),
        (tar_gz({}), "no file in it"),
        (b"PK\x03\x04 no tar", "not a tar.gz archive"),
        (b"", "not a tar.gz archive"),
        (tar_gz({"a": b"x" * 5000})[:-40], "not a tar.gz archive"),
    ],
    ids=[
        "a name that leads outside",
        "an absolute name",
        "a backslash",
        "a link",
        "a hard link",
        "a pipe",
        "a name that is there twice",
        "nothing in it",
        "a zip",
        "no byte",
        "half of it",
    ],  # without them the archives would be the names, and an archive has the second it was made in
)
def test_what_is_unsafe_or_no_archive_is_refused(blobs, data, said):
    with pytest.raises(RefusedError, match="refused") as caught:
        unpacked(blobs, data)

    assert said in caught.value.message


def test_a_small_archive_of_many_zeros_is_not_unpacked_to_its_end(blobs, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)

    with pytest.raises(RefusedError, match="more than 1048576 bytes"):
        unpacked(blobs, tar_gz({"zeros": b"\0" * (8 << 20)}))


def test_a_header_that_claims_gigabytes_reads_no_more_than_the_limit(blobs, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
    entry = tarfile.TarInfo("huge")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 32
    data = gzip.compress(entry.tobuf() + b"\0" * (4 << 20))

    with pytest.raises(RefusedError, match="more than 1048576 bytes"):
        unpacked(blobs, data)


def test_too_many_files_are_refused(blobs, monkeypatch):
    monkeypatch.setattr(archives, "MOST", 3)

    with pytest.raises(RefusedError, match="more than 3 files"):
        unpacked(blobs, tar_gz({f"{n}.py": "x" for n in range(5)}))
