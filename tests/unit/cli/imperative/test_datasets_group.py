"""arena datasets, at a real server."""

from __future__ import annotations

import json

import pytest

MAPPING = '{"question": "question", "answer": "answer"}'
CREATE = ("datasets", "create")


def test_a_file_becomes_a_dataset_and_the_same_again_is_no_error(arena):
    create = (
        *CREATE,
        "from file",
        "--category",
        "Reasoning",
        "--file",
        "sums.csv",
        "--column-mapping",
        MAPPING,
    )
    out, err = arena.both(*create)
    assert out == "dataset from file (from-file)\n"
    assert "40 rows" in err
    assert arena.json(*create) == {
        "name": "from file",
        "id": "from-file",
        "category": "reasoning",
        "is_ready": True,
        "uploaded": True,
        "message": "40 rows, 40 different; the first: question: What is 0 + 0?; answer: #### 0",
    }
    assert arena.json("datasets", "list", "--search", "from file")[0]["managed_by"] == "imperative"

    (arena.folder / "sums.csv").write_text("question,answer\n1?,1\n2?,2\n")
    assert "exists with other content" in arena.both(*create, expect=1)[1]

    arena("datasets", "delete", "from file", "--yes")
    assert arena.json("datasets", "list", "--search", "from file") == []


def test_a_hub_dataset_needs_no_file(arena):
    columns = arena.folder / "columns.json"
    columns.write_text(MAPPING)
    hub = ("--hf-dataset", "openai/gsm8k", "--hf-config", "main", "--hf-split", "train")
    arena(*CREATE, "gsm8k", "--category", "reasoning", *hub, "--column-mapping-file", str(columns))

    assert "gsm8k  reasoning  openai/gsm8k  question=question, answer=answer" in arena("datasets", "list")


def test_whether_there_is_one_is_also_the_exit_code(sums):
    assert sums("datasets", "exists", "sums") == "exists: sums\n"
    assert sums("datasets", "exists", "nums", expect=1) == "does not exist\n"
    assert sums.json("datasets", "exists", "nums", expect=1) == {"exists": False, "id": None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--column-mapping", MAPPING), "either --file or --hf-dataset"),
        (("--file", "sums.csv", "--hf-dataset", "a/b", "--column-mapping", MAPPING), "and not both"),
        (("--hf-dataset", "a/b", "--column-mapping", MAPPING), "needs --hf-split"),
        (("--file", "sums.csv", "--hf-split", "train", "--column-mapping", MAPPING), "are for --hf-dataset"),
        (("--file", "sums.csv"), "either --column-mapping or"),
        (("--file", "sums.csv", "--column-mapping", "{question}"), "--column-mapping is no JSON"),
        (("--file", "sums.csv", "--column-mapping", "[]"), 'expected {"question"'),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_sent(alone, options, said):
    (alone.folder / "sums.csv").write_text("question,answer\n")
    assert said in alone.both(*CREATE, "x", "--category", "reasoning", *options, expect=64)[1]


def test_a_folder_of_parquet_files_keeps_its_names(at_script, scripted, monkeypatch):
    from arena_gitops.cli.imperative import stream

    folder = at_script.folder / "gsm8k"
    (folder / "main").mkdir(parents=True)
    (folder / "main" / "train-0.parquet").write_bytes(b"PAR1a")
    (folder / "main" / "train-1.parquet").write_bytes(b"PAR1b")
    (folder / "README.md").write_text("not sent")
    monkeypatch.setattr(stream, "TELL_FROM", 1)
    scripted.will((200, json.dumps({"name": "g", "is_ready": False}).encode(), {}))
    options = ("--category", "reasoning", "--config", "main", "--column-mapping", MAPPING)

    out, err = at_script.both(*CREATE, "g", "--file", "gsm8k", *options)

    sent = scripted.asked[0].body
    assert b'filename="main/train-0.parquet"' in sent
    assert b'filename="main/train-1.parquet"' in sent
    assert b"not sent" not in sent
    assert out == "dataset g (g), not ready yet\n"
    assert err.splitlines() == ["uploading gsm8k (0.0 MiB)", "uploaded gsm8k"]
