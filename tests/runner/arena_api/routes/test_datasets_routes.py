"""Datasets: rows sent along, rows on the hub."""

from __future__ import annotations

import pytest
from arena_asks import CSV, P, make_dataset, submit
from hub import parquet


def test_a_csv_becomes_a_dataset(http):
    made = make_dataset(http).json()

    assert (made["is_ready"], made["uploaded"]) == (True, True)
    assert "4 rows" in made["message"]
    assert http.get(f"{P}/datasets/exists", params={"name": "sums"}).json()["datasetType"] == "reasoning"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.parquet", parquet([{"question": "q", "answer": "a"}])),
        ("rows.jsonl", b'{"question": "q", "answer": "a"}\n'),
        ("dataset.csv", b"question,answer\nq,a\n"),
    ],
)
def test_one_file_of_any_format_becomes_a_dataset(http, name, content):
    made = make_dataset(http, files=[("file", (name, content, "application/octet-stream"))]).json()

    assert (made["is_ready"], "1 rows" in made["message"]) == (True, True)


def test_an_empty_query_value_is_no_filter(http):
    make_dataset(http)

    assert [row["name"] for row in http.get(f"{P}/datasets?name=&search=").json()] == ["sums"]


def test_parquet_files_of_a_folder_become_one_dataset_of_their_train_split(world, http):
    rows = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(6)]
    names = {
        "main/train-0.parquet": rows[:2],
        "main/train-1.parquet": rows[2:4],
        "main/test-0.parquet": rows[4:],
    }
    files = [
        ("file", (name, parquet(part), "application/vnd.apache.parquet")) for name, part in names.items()
    ]

    made = make_dataset(http, files=files, config="main").json()

    assert "4 rows, 4 different" in made["message"]


def test_a_dataset_of_a_name_only_waits_for_its_rows(http):
    made = make_dataset(http, files=()).json()
    refused = submit(http)[-1]

    filled = make_dataset(http).json()

    assert (made["is_ready"], made["uploaded"], filled["is_ready"]) == (False, False, True)
    assert "has no rows yet" in refused["message"]


def test_files_and_the_hub_together_are_refused(http):
    answer = make_dataset(http, hf_dataset_name="openai/gsm8k")

    assert (answer.status_code, "and not both" in answer.json()["detail"]) == (422, True)


def test_a_dataset_is_deleted_by_a_body_on_delete(http):
    make_dataset(http)

    assert http.request("DELETE", f"{P}/datasets/delete", json={"name": "sums"}).status_code == 200
    assert http.get(f"{P}/datasets/exists?name=sums").json() == {"exists": False}
    assert http.request("DELETE", f"{P}/datasets/delete", json={"name": "sums"}).status_code == 404


def test_a_hub_dataset_is_kept_by_its_id(http):
    made = make_dataset(http, files=(), hf_dataset_name="openai/gsm8k", hf_config="main", hf_split="train")

    assert made.status_code == 200, made.text
    assert http.get(f"{P}/datasets").json()[0]["hf_dataset_id"] == "openai/gsm8k"


@pytest.mark.parametrize(
    ("fields", "files", "wanted"),
    [
        ({"column_mapping": "{"}, None, "not JSON"),
        ({"column_mapping": '{"question": "question"}'}, None, "maps question, answer"),
        ({"column_mapping": '{"question": "questoin", "answer": "answer"}'}, None, "no column 'questoin'"),
        ({"category": "chess"}, None, "one of reasoning, preference, sft"),
        ({}, [("file", ("a.parquet", b"PAR1 no", "x"))], "not a parquet file"),
        ({}, [("file", ("a.parquet", b"x", "x")), ("file", ("b.csv", b"x", "x"))], "must all be parquet"),
        ({"name": "!!!"}, None, "is no name"),
    ],
)
def test_a_wrong_dataset_is_refused_in_one_sentence_and_not_kept(http, fields, files, wanted):
    answer = make_dataset(http, files=files, **fields)

    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    assert wanted in answer.json()["detail"]
    assert http.get(f"{P}/datasets").json() == []


def test_a_dataset_of_other_content_does_not_replace_one(http):
    make_dataset(http)

    again = make_dataset(http)
    other = make_dataset(http, files=[("file", ("s.csv", CSV + b"What is 3?,3\n", "text/csv"))])

    assert (again.status_code, other.status_code) == (200, 409)
