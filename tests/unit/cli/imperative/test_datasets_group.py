"""arena datasets, at a real server."""

from __future__ import annotations

import json

import pytest

MAPPING = '{"question": "question", "answer": "answer"}'
CREATE = ("datasets", "create")


def row(arena, name):
    return next((row for row in arena.json("datasets", "list") if row["name"] == name), None)


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
        "status": "ready",
        "message": "40 rows, 40 different; the first: question: What is 0 + 0?; answer: #### 0",
    }
    assert row(arena, "from file")["managed_by"] == "imperative"

    (arena.folder / "sums.csv").write_text("question,answer\n1?,1\n2?,2\n")
    assert "exists with other content" in arena.both(*create, expect=1)[1]

    arena("datasets", "delete", "from file", "--yes")
    assert row(arena, "from file") is None


def test_a_hub_dataset_needs_no_file_and_is_ready_in_a_while(arena):
    columns = arena.folder / "columns.json"
    columns.write_text(MAPPING)
    options = ("--category", "reasoning", "--column-mapping-file", str(columns), "--hf-split", "train")
    gsm8k = (*CREATE, "gsm8k", *options, "--hf-dataset", "openai/gsm8k", "--hf-config", "main")
    out, err = arena.both(*gsm8k, "--wait", "--timeout", "60s")
    assert (out, "3 rows" in err) == ("dataset gsm8k (gsm8k)\n", True)
    assert "gsm8k  reasoning  ready   openai/gsm8k  question=question" in arena("datasets", "list")

    odd = (*CREATE, "odd", *options, "--hf-dataset", "team/other-columns")
    assert "no column 'question'" in arena.both(*odd, "--wait", expect=10)[1]
    assert row(arena, "odd")["status"] == "failed"


def test_a_search_is_one_of_the_hub(arena):
    assert [found["name"] for found in arena.json("datasets", "list", "--search", "openai")] == [
        "openai/gsm8k"
    ]
    assert arena("datasets", "list", "--search", "openai").startswith("NAME          DOWNLOADS  LIKES")


def test_a_dataset_without_rows_is_a_promise(arena):
    out, err = arena.both(
        *CREATE, "later", "--category", "sft", "--column-mapping", '{"prompt": "p", "target": "t"}'
    )
    assert (out, "create it again with --file" in err) == ("dataset later (later), empty\n", True)


def test_waiting_for_rows_has_an_end(at_script, scripted):
    pending = {"name": "g", "is_ready": False, "status": "pending"}
    scripted.will((200, json.dumps(pending).encode(), {}), (200, json.dumps([pending]).encode(), {}))
    options = (
        "--category",
        "reasoning",
        "--hf-dataset",
        "a/b",
        "--hf-split",
        "train",
        "--column-mapping",
        MAPPING,
    )
    _, err = at_script.both(*CREATE, "g", *options, "--wait", "--timeout", "0", expect=9)
    assert "dataset g is pending after 0 s" in err


def test_whether_there_is_one_is_also_the_exit_code(sums):
    assert sums("datasets", "exists", "sums") == "exists: sums\n"
    assert sums("datasets", "exists", "nums", expect=1) == "does not exist\n"
    assert sums.json("datasets", "exists", "nums", expect=1) == {"exists": False, "id": None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--column-mapping", MAPPING, "--timeout", "5s"), "--timeout is for --wait"),
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
