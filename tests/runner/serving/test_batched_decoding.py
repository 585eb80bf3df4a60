"""Rows of several adapters in one batch: each is answered as if it were alone."""

from __future__ import annotations

import threading

import pytest

from arena_runner.serving.protocol import BASE
from arena_runner.serving.shelf import UnfitAdapterError, UnknownAdapterError

PROMPTS = ("What is 2+2?", "x", "A much longer prompt, so that lengths in the batch differ a lot. " * 3)


def test_the_decoder_agrees_with_transformers_and_peft(driver, adapters, tiny_model_dir):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    driver.load("a@1")
    driver.load("b@1")
    for name in ("a@1", "b@1"):
        plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
        model = PeftModel.from_pretrained(plain, adapters[name][0])
        ids = torch.tensor([driver.ids(PROMPTS[0])])
        with torch.no_grad():
            expected = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
            )
        text = driver.base.tokenizer.decode(expected[0, ids.shape[1] :], skip_special_tokens=True)
        assert driver.say(name, PROMPTS[0]) == text


def test_adapters_speak_differently_and_the_base_differs_from_both(driver):
    driver.load("a@1")
    driver.load("b@1")
    assert len({driver.say(name, PROMPTS[0]) for name in (BASE, "a@1", "b@1")}) == 3


def test_a_batch_of_three_adapters_equals_each_row_alone(driver):
    for name in ("a@1", "b@1", "c@1"):
        driver.load(name)
    asked = [(name, prompt) for name in (BASE, "a@1", "b@1", "c@1") for prompt in PROMPTS]
    alone = [driver.say(name, prompt) for name, prompt in asked]
    together = [driver.ask(name, prompt) for name, prompt in asked]  # more than there are rows
    assert [driver.wait(one).text for one in together] == alone


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("qwen2", {}),
        ("mistral", {"sliding_window": 8}),
        ("gemma2", {"final_logit_softcapping": None, "query_pre_attn_scalar": 8}),  # not cached here
    ],
)
def test_other_architectures_and_sliding_windows_agree_with_transformers(tiny_model_of, arch, changes):
    import queue

    import torch
    from transformers import AutoModelForCausalLM

    from arena_runner.models import load_base
    from arena_runner.serving.protocol import Params
    from arena_runner.serving.scheduler import Scheduler

    folder = tiny_model_of(arch, **changes)
    base = load_base(str(folder), dtype=torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = base.tokenizer(PROMPTS[0], add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        tensor = torch.tensor([ids])
        done = plain.generate(
            tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=20, do_sample=False
        )
    scheduler, pieces = Scheduler(base), queue.SimpleQueue()
    scheduler.start()
    scheduler.submit(BASE, tuple(ids), Params(max_new_tokens=20, temperature=0), pieces.put)
    text = ""
    while not (piece := pieces.get(timeout=30)).finish:
        text += piece.text
    scheduler.stop()
    assert text + piece.text == base.tokenizer.decode(done[0, len(ids) :], skip_special_tokens=True)


def test_logprobs_are_those_of_the_adapted_model(driver, adapters, tiny_model_dir):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    driver.load("b@1")
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, adapters["b@1"][0])
    prompt, answer = driver.ids("2+2="), driver.ids("4, of course")
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None])[:, 0]
    found = driver.scheduler.logprobs("b@1", prompt, answer).result(timeout=30)
    assert found == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_seeded_sample_does_not_depend_on_its_neighbours(driver):
    driver.load("a@1")
    options = {"temperature": 1.0, "top_p": 0.95, "seed": 7}
    alone = driver.say("a@1", PROMPTS[0], **options)
    crowd = [driver.ask(BASE, PROMPTS[n % 3], temperature=1.0, seed=n) for n in range(6)]
    asked = driver.ask("a@1", PROMPTS[0], **options)
    assert driver.wait(asked).text == alone
    assert driver.say("a@1", PROMPTS[0], **{**options, "seed": 8}) != alone
    for other in crowd:
        driver.wait(other)


def test_an_adapter_is_loaded_while_others_generate_and_changes_nothing_for_them(driver):
    driver.load("a@1")
    expected = driver.say("a@1", PROMPTS[0], max_new_tokens=200)
    running = [driver.ask("a@1", PROMPTS[0], max_new_tokens=200) for _ in range(4)]
    driver.load("b@1")
    driver.load("c@1")
    assert driver.say("b@1", PROMPTS[0]) != expected[:24]
    assert [driver.wait(one).text for one in running] == [expected] * 4


def test_an_unloaded_adapter_ends_what_it_has_begun_and_is_then_unknown(driver):
    driver.load("a@1")
    expected = driver.say("a@1", PROMPTS[0], max_new_tokens=150)
    running = driver.ask("a@1", PROMPTS[0], max_new_tokens=150)
    driver.scheduler.unload_adapter("a@1")
    with pytest.raises(UnknownAdapterError, match="adapter a@1 is not loaded; loaded: none"):
        driver.ask("a@1", "x")
    assert driver.wait(running).text == expected


def test_an_unknown_adapter_is_never_answered_with_the_base(driver):
    driver.load("a@1")
    with pytest.raises(UnknownAdapterError, match="adapter a@2 is not loaded; loaded: a@1"):
        driver.ask("a@2", "x")


def test_an_adapter_that_does_not_fit_leaves_the_others_in_place(driver, adapters, tmp_path):
    import json
    import shutil

    driver.load("a@1")
    expected = driver.say("a@1", PROMPTS[0])
    broken = tmp_path / "broken"
    shutil.copytree(adapters["b@1"][0], broken)
    config = json.loads((broken / "adapter_config.json").read_text())
    (broken / "adapter_config.json").write_text(json.dumps({**config, "r": 3}))
    driver._adapters = {**adapters, "broken": (broken, "")}
    with pytest.raises(UnfitAdapterError, match="tensors do not fit"):
        driver.load("broken")
    assert driver.say("a@1", PROMPTS[0]) == expected


def test_an_adapter_of_other_base_weights_is_refused(driver, tiny_model_of, adapter_writer, tmp_path):

    adapter_writer(tiny_model_of("llama", hidden_size=48), tmp_path / "other", seed=1)
    driver._adapters = {"other": (tmp_path / "other", "")}
    with pytest.raises(UnfitAdapterError, match="was trained on base weights sha256:"):
        driver.load("other")


def test_a_cancelled_row_makes_room_at_once(driver):
    asked = driver.ask(BASE, "x", max_new_tokens=900)
    asked.pieces.get(timeout=30)
    asked.row.cancelled = True
    driver.say(BASE, "y", max_new_tokens=2)
    assert driver.scheduler.load == (0, 0)


def test_a_stop_string_ends_the_completion_before_itself(driver):
    whole = driver.say(BASE, PROMPTS[0], max_new_tokens=60)
    stop = whole[20:23]
    stopped = driver.wait(driver.ask(BASE, PROMPTS[0], max_new_tokens=60, stop=(stop,)))
    assert stopped.text == whole[: whole.index(stop)]
    assert stopped.finish.reason == "stop"


def test_a_completion_never_outgrows_the_models_context(driver):
    from arena_runner.serving.decoder import PromptTooLongError

    with pytest.raises(PromptTooLongError, match="the prompt has 1024 tokens"):
        driver.ask(BASE, "x" * 1024)
    done = driver.wait(driver.ask(BASE, "x" * 1020, max_new_tokens=100))
    assert done.finish.completion_tokens <= 4


def test_a_failing_step_is_told_to_its_rows_and_the_scheduler_goes_on(driver, monkeypatch):
    expected = driver.say(BASE, "x")
    broken = threading.Event()
    real = driver.scheduler._decoder._forward

    def forward(*args, **kwargs):
        if not broken.is_set():
            broken.set()
            raise RuntimeError("out of memory")
        return real(*args, **kwargs)

    monkeypatch.setattr(driver.scheduler._decoder, "_forward", forward)
    assert driver.ask(BASE, "x").pieces.get(timeout=30).error == "RuntimeError: out of memory"
    assert driver.say(BASE, "x") == expected


def test_a_model_whose_attention_cannot_be_cached_here_answers_the_same(tiny_base, adapters, driver):
    from dataclasses import replace

    driver.load("a@1")
    expected = [driver.say(name, PROMPTS[0]) for name in (BASE, "a@1")]
    driver.scheduler.shelf.clear()
    slow = type(driver)(replace(tiny_base, packs=False), adapters)
    slow.load("a@1")
    asked = [slow.ask(name, PROMPTS[0]) for name in (BASE, "a@1")]
    assert [slow.wait(one).text for one in asked] == expected
    slow.scheduler.stop()
    slow.scheduler.shelf.clear()
