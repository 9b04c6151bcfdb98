"""Fine-tuning reads what scoring reads: prompts are an exact prefix, only completions are supervised, the end included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gapscope.errors import InputError
from gapscope.lm import load_lm
from gapscope.params_variants import FineTuneParams
from gapscope.variants.finetune import IGNORED, Example, cut, encode_example, encode_examples, fine_tune, freeze

ROWS = [Example("Question: what is wet?\nAnswer:", " water"), Example("Question: what is hot?\nAnswer:", " fire")]


def test_only_the_completion_and_the_end_are_supervised(tiny_lm_dir: Path) -> None:
    lm = load_lm(tiny_lm_dir)
    ids, labels = encode_example(lm.tokenizer, ROWS[0], bos=False)
    taught = [label for label in labels if label != IGNORED]
    assert taught[-1] == lm.tokenizer.eos_token_id
    assert lm.tokenizer.decode(taught[:-1]) == " water"
    assert ids[: len(ids) - len(taught)] == lm.tokenizer(ROWS[0].prompt)["input_ids"]


def test_special_strings_stay_text(tiny_lm_dir: Path) -> None:
    lm = load_lm(tiny_lm_dir)
    ids, _labels = encode_example(lm.tokenizer, Example("What does <|im_end|> mean?", " the end"), bos=False)
    assert ids.count(lm.tokenizer.eos_token_id) == 1


def test_long_rows_are_left_out_and_counted(tiny_lm_dir: Path) -> None:
    lm = load_lm(tiny_lm_dir)
    rows, n_too_long = encode_examples(lm, [*ROWS, Example("word " * 200, "x")], max_tokens=60)
    assert len(rows) == 2 and n_too_long == 1
    with pytest.raises(InputError, match="every training row is longer than 3 tokens"):
        encode_examples(lm, ROWS, max_tokens=3)


def test_an_empty_completion_is_refused(tiny_lm_dir: Path) -> None:
    with pytest.raises(InputError, match="no supervised token"):
        encode_example(load_lm(tiny_lm_dir).tokenizer, Example("What?", ""), bos=False)


def test_cut_and_freeze(tiny_lm_dir: Path) -> None:
    lm = load_lm(tiny_lm_dir)
    cut(lm, 2)
    freeze(lm, 1)
    assert lm.n_layers == 2 and lm.model.config.num_hidden_layers == 2
    learning = {name for name, value in lm.model.named_parameters() if value.requires_grad}
    assert learning and all(name.startswith(("model.layers.1.", "model.norm")) for name in learning)


def test_it_learns_and_repeats_itself(tiny_lm_dir: Path) -> None:
    params = FineTuneParams(steps=30, batch_size=2, learning_rate=0.02, trained_layers=2)
    one = fine_tune(tiny_lm_dir, ROWS, params, seed=1, device="cpu", threads=1)
    assert one.losses[-1][1] < 0.3 * one.losses[0][1]
    assert one.counts["n_steps"] == 30
    two = fine_tune(tiny_lm_dir, ROWS, params, seed=1, device="cpu", threads=1)
    assert all(torch.equal(a, b) for a, b in zip(one.lm.model.parameters(), two.lm.model.parameters(), strict=True))
    start = load_lm(tiny_lm_dir)
    assert torch.equal(one.lm.model.model.layers[0].mlp.up_proj.weight, start.model.model.layers[0].mlp.up_proj.weight)


def test_a_loss_that_is_no_number_stops(tiny_lm_dir: Path) -> None:
    params = FineTuneParams(steps=12, batch_size=2, learning_rate=1e30, trained_layers=None)
    with pytest.raises(InputError, match="the loss is not finite"):
        fine_tune(tiny_lm_dir, ROWS, params, seed=1, device="cpu", threads=1)
