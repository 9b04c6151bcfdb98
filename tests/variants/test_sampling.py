"""Sampling: each row by its own draws.

What must hold: in float32 a row is the same alone, in a batch, and in another order, whatever its neighbours' lengths; a
seed gives one text, another seed another; the draws follow the model's distribution, cut at top_p; a row ends at the
end-of-text token and no row goes on beyond it; the text is what the reference implementation gives when greedy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gapscope.errors import InputError
from gapscope.lm import LM, load_lm
from gapscope.variants.sampling import Sampling, _pick, encode_prompt, sample

HOW = Sampling(24, 1.0, 0.95)
PROMPTS = ["The dog ran to the river", "Owl", "Which of these did the hammer stand next to, the saw or the wall? " * 2, "A user asked"]


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


def test_a_row_does_not_depend_on_its_batch(lm: LM) -> None:
    rows, seeds = [encode_prompt(lm, prompt) for prompt in PROMPTS], [11, 12, 13, 14]
    together = sample(lm, rows, seeds, HOW)
    alone = [sample(lm, [row], [seed], HOW)[0] for row, seed in zip(rows, seeds, strict=True)]
    assert together == alone
    assert sample(lm, rows[::-1], seeds[::-1], HOW) == together[::-1]
    assert len({one.n_tokens for one in together}) > 1 or all(not one.ended for one in together)


def test_seeds_decide(lm: LM) -> None:
    row = encode_prompt(lm, PROMPTS[0])
    made = sample(lm, [row] * 6, [1, 1, 2, 3, 4, 5], HOW)
    assert made[0] == made[1]
    assert len({one.text for one in made}) >= 4


def test_rows_end_at_the_end_token(lm: LM) -> None:
    row = encode_prompt(lm, PROMPTS[0])
    made = sample(lm, [row] * 40, range(40), Sampling(60, 2.0, 1.0))
    ended = [one for one in made if one.ended]
    assert 0 < len(ended) < 40
    assert all(one.n_tokens == 60 for one in made if not one.ended)
    assert all("<|im_end|>" not in one.text for one in made)


def test_near_greedy_equals_transformers(lm: LM) -> None:
    row = encode_prompt(lm, PROMPTS[2])
    ours = sample(lm, [row], [0], Sampling(16, 1.0, 1e-9))[0]
    theirs = lm.model.generate(torch.tensor([row]), max_new_tokens=16, do_sample=False, pad_token_id=2)[0, len(row) :].tolist()
    kept = theirs[: theirs.index(2)] if 2 in theirs else theirs
    assert ours.text == lm.tokenizer.decode(kept)


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    draws = [(k + 0.5) / 1000 for k in range(1000)]
    picked = [_pick(logits, [draw], Sampling(1, 1.0, 1.0))[0] for draw in draws]
    assert [picked.count(token) for token in range(4)] == pytest.approx([500, 300, 150, 50], abs=1)
    # 0.5 and 0.3 hold 0.75 together; the rest is never drawn, and the two keep their proportion.
    cut = [_pick(logits, [draw], Sampling(1, 1.0, 0.75))[0] for draw in draws]
    assert [cut.count(token) for token in range(4)] == pytest.approx([625, 375, 0, 0], abs=1)
    cold = [_pick(logits, [draw], Sampling(1, 0.5, 1.0))[0] for draw in draws]
    assert cold.count(0) == pytest.approx(1000 * 0.25 / (0.25 + 0.09 + 0.0225 + 0.0025), abs=1)


def test_broken_weights_are_said() -> None:
    with pytest.raises(InputError, match="not finite"):
        _pick(torch.full((1, 4), float("nan")), [0.5], HOW)
