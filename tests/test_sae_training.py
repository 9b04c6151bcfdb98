"""Training an SAE through SAELens's trainer, its metrics, and resuming.

What must hold:
- the sparse training step has the loss and the gradients of SAELens's own BatchTopK class;
- calibration makes the mean number of active latents k, and the saved SAE fires exactly where the trained one does;
- SAE.load_from_disk reads the result; its metadata is there; no path or time is in it; the same seed gives the same bytes;
- killed at any moment and run again, the same bytes come out, and no finished shard is computed again;
- held-out documents are never trained on; first positions and special tokens never enter; a text is in one part only;
- FVU, L0, dead share and outliers are what a few lines of numpy say;
- too small a corpus and a non-finite loss or activation are errors that say so.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sae_lens import SAE, BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
from sae_lens.saes.sae import TrainStepInput
from tiny_sae import random_jumprelu

import gapscope.sae_training as training
from gapscope.documents import part_of, read_documents, token_windows, usable_tokens
from gapscope.errors import InputError
from gapscope.files import sha256_tree
from gapscope.lm import LM, load_lm, pad_batch, read_residual
from gapscope.params import TrainSaeParams
from gapscope.sae import load_sae
from gapscope.sae_metrics import loss_recovered, measure
from gapscope.sae_model import SparseBatchTopK
from gapscope.sae_training import batches_of, cached_activations, optimise, shortened, train_sae
from gapscope.work import WorkDirectory

WORDS = ["dog", "cat", "river", "bridge", "hammer", "bread", "owl", "tree"]
DOCUMENTS = [
    f"The {a} saw the {b} near the {c}, and number {i} ran away from a {a}." for i in range(2) for a in WORDS for b in WORDS for c in WORDS
]
PARAMS = TrainSaeParams(d_sae=96, k=8, context_size=24, train_tokens=4000, heldout_tokens=2000, steps=40, batch_tokens=256)


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


def step(kind: type[BatchTopKTrainingSAE], dead: torch.Tensor | None) -> tuple[dict[str, float], dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    sae = kind(BatchTopKTrainingSAEConfig(d_in=32, d_sae=96, k=6))
    x = 3 * torch.randn((64, 32)) + 1
    sae.b_dec.data = x.mean(0)
    sae.W_dec.data *= torch.linspace(0.5, 2, 96)[:, None]
    out = sae.training_forward_pass(
        TrainStepInput(sae_in=x, dead_neuron_mask=dead, coefficients={}, n_training_steps=0, is_logging_step=False)
    )
    out.loss.backward()
    codes = out.feature_acts.to_dense() if out.feature_acts.is_sparse else out.feature_acts
    return {name: float(loss.detach()) for name, loss in out.losses.items()}, {n: p.grad for n, p in sae.named_parameters()}, codes.detach()


def test_sparse_step_equals_saelens() -> None:
    dense_losses, dense_gradients, dense_codes = step(BatchTopKTrainingSAE, None)
    losses, gradients, codes = step(SparseBatchTopK, None)
    assert losses["mse_loss"] == pytest.approx(dense_losses["mse_loss"], rel=1e-5)
    assert torch.allclose(codes, dense_codes, atol=1e-5)
    assert int((codes > 0).sum()) == 6 * 64
    assert set(gradients) == set(dense_gradients)
    for name, gradient in dense_gradients.items():
        assert torch.allclose(gradients[name], gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max())), name


def test_auxiliary_loss_equals_saelens_while_few_latents_are_dead() -> None:
    # SAELens lets d_in / 2 = 16 dead latents fire and weighs by their number over 16, here over AUX_K.
    dead = torch.zeros(96, dtype=torch.bool)
    dead[[3, 40, 77]] = True
    name = "auxiliary_reconstruction_loss"
    dense, sparse = step(BatchTopKTrainingSAE, dead)[0], step(SparseBatchTopK, dead)[0]
    assert sparse["mse_loss"] == pytest.approx(dense["mse_loss"], rel=1e-5)
    assert 0 < sparse[name] < dense[name]


def test_fast_choice_of_candidates_changes_nothing() -> None:
    torch.manual_seed(1)
    sae = SparseBatchTopK(BatchTopKTrainingSAEConfig(d_in=32, d_sae=96, k=6))
    pre = torch.randn((64, 96))
    expected = torch.topk(pre.flatten(), 6 * 64).indices.sort().values
    for threshold in (0.0, 0.5, 1.0, 5.0):
        sae.topk_threshold = torch.tensor(threshold).double()
        assert torch.equal(sae._pick(pre), expected), threshold
    assert torch.equal(sae._pick(-pre.abs() + torch.eye(64, 96) * 9), torch.arange(64) * 97), "fewer are positive than k asks for"


def test_saved_sae_fires_where_the_trained_one_does(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    x = (torch.randn((3000, 32), generator=generator) * torch.linspace(0.2, 3, 32) + 1).bfloat16()
    sae = optimise(x, PARAMS, 5, torch.device("cpu"))
    training.save(sae, tmp_path, {"model_name": "m", "hook_name": "blocks.1.hook_resid_post", "prepend_bos": True})
    loaded = load_sae(tmp_path)
    codes = loaded.encode(x.float())
    assert float((codes > 0).sum()) / len(x) == pytest.approx(PARAMS.k, abs=0.05)
    norms = sae.W_dec.norm(dim=1)
    pre = ((x.float() - sae.b_dec) @ sae.W_enc + sae.b_enc) * norms
    agree = (codes > 0) == (pre > float(sae.topk_threshold))
    assert agree.float().mean() > 0.9999
    assert torch.allclose(loaded.sae.W_dec.norm(dim=1), torch.ones(96), atol=1e-5)
    total = (x.float() - x.float().mean(0)).pow(2).sum()
    assert (x.float() - loaded.reconstruct(x)).pow(2).sum() / total < 0.6


def run(lm: LM, directory: Path, work: Path, seed: int = 3) -> tuple[str, training.Trained]:
    directory.mkdir()
    trained = train_sae(lm, DOCUMENTS, 1, PARAMS, directory, WorkDirectory(work, "train-sae", "k"), name="tiny", seed=seed)
    return sha256_tree(directory), trained


def test_same_seed_same_bytes_and_saelens_reads_them(lm: LM, tmp_path: Path) -> None:
    first, trained = run(lm, tmp_path / "a", tmp_path / "w1")
    assert run(lm, tmp_path / "b", tmp_path / "w2")[0] == first
    assert run(lm, tmp_path / "c", tmp_path / "w2", seed=4)[0] != first
    sae = SAE.load_from_disk(tmp_path / "a")
    text = (tmp_path / "a/cfg.json").read_text()
    metadata = json.loads(text)["metadata"]
    wanted = {"model_name": "tiny", "hook_name": "blocks.1.hook_resid_post", "hook_layer": 1, "context_size": 24, "prepend_bos": True}
    assert wanted.items() <= metadata.items()
    assert str(tmp_path) not in text
    assert sae.cfg.architecture() == "jumprelu"
    assert trained.n_train == 4000
    assert trained.heldout.n_tokens == 2000
    assert 0 < trained.heldout.fvu < 1
    assert abs(trained.heldout.l0 - PARAMS.k) < 2


def test_killed_and_run_again(lm: LM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "plan_shards", lambda batches, lengths: [[batch] for batch in batches])
    expected, _trained = run(lm, tmp_path / "whole", tmp_path / "w1")
    read, calls = training.read_residual, 0

    def dying(*args: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls in (3, 9):
            raise KeyboardInterrupt
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "read_residual", dying)
    for attempt in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            run(lm, tmp_path / attempt, tmp_path / "w2")
    assert run(lm, tmp_path / "third", tmp_path / "w2")[0] == expected
    n_batches = len(list((tmp_path / "w2/train-sae/k").glob("*.bf16")))
    assert calls == n_batches + 2, "a finished shard is not computed again"


def test_activations_are_those_of_counted_tokens(lm: LM, tmp_path: Path) -> None:
    windows = [[1, 5, 6, 7, 8], [1, 9, 0, 10]]  # 0 is a special token inside the text
    x = cached_activations(lm, windows, 1, PARAMS, WorkDirectory(tmp_path, "t", "k"), "train")
    residual = read_residual(lm, *pad_batch(windows, 2, lm.device), 1)
    assert torch.equal(x, torch.cat([residual[0, 1:5], residual[1, [1, 3]]]).bfloat16())


def test_parts_are_disjoint_and_stable(lm: LM) -> None:
    parts = {part: {text for text in DOCUMENTS if part_of(text) == part} for part in ("train", "heldout", "reference")}
    assert sum(map(len, parts.values())) == len(DOCUMENTS)
    assert 0.4 < len(parts["train"]) / len(DOCUMENTS) < 0.6
    shared = {"context": 24, "prepend_bos": True, "budget": 500}
    found = token_windows(lm.tokenizer, DOCUMENTS, "train", **shared)  # type: ignore[arg-type]
    windows = [window.ids for window in found]
    assert usable_tokens(windows) == 500
    assert all(window[0] == 1 and 1 not in window[1:] and len(window) <= 24 for window in windows)
    texts = [lm.tokenizer.decode(window[1:]) for window in windows]
    assert all(any(document.startswith(text) for document in parts["train"]) for text in texts[:-1])
    assert all(DOCUMENTS[one.document].startswith(text) for one, text in zip(found, texts, strict=True) if one.start == 0)


def test_every_document_comes_before_any_second_window(lm: LM) -> None:
    documents = [text for text in (f"{word} " * 40 for word in WORDS) if part_of(text) == "train"]
    assert len(documents) >= 2
    windows = token_windows(lm.tokenizer, documents, "train", context=20, prepend_bos=False, budget=10**6)
    firsts = [lm.tokenizer.decode(window.ids) for window in windows[: len(documents)]]
    assert all(text.startswith(first) for text, first in zip(documents, firsts, strict=True))
    for window in windows:
        whole = lm.tokenizer(documents[window.document], add_special_tokens=False)["input_ids"]
        assert window.ids == whole[window.start : window.start + 20]


def test_corpus_reading(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "b"}\n{"text": "a"}\n{"text": "b"}\n')
    texts = read_documents(file)
    file.write_text('{"text": "a"}\n{"text": "b"}\n')
    assert list(read_documents(file).items()) == list(texts.items())
    assert sorted(texts) == ["a", "b"]
    file.write_text('{"text": "a", "id": "z"}\n{"text": "a", "id": "y"}\n{"text": "b", "id": 7}\n')
    assert read_documents(file) == {"a": "y", "b": "7"}
    file.write_text('{"text": "a"}\n{"words": 3}\n')
    with pytest.raises(InputError, match=r"corpus\.jsonl:2: text: must be a string"):
        read_documents(file)


def test_metrics_by_hand() -> None:
    sae = random_jumprelu()
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn((500, 32), generator=generator)
    x[7] *= 100
    found = measure(sae, x, 10.0)
    kept = np.arange(500) != 7
    rows = x.double().numpy()
    pre = rows @ sae.W_enc.detach().double().numpy() + sae.b_enc.detach().double().numpy()
    codes = np.where(pre > 1.5, pre, 0)
    error = ((rows - codes @ sae.W_dec.detach().double().numpy()) ** 2).sum(1)
    fvu = error[kept].sum() / ((rows[kept] - rows[kept].mean(0)) ** 2).sum()
    assert found.fvu == pytest.approx(fvu, rel=1e-4)
    assert found.fvu_all == pytest.approx(error.sum() / ((rows - rows.mean(0)) ** 2).sum(), rel=1e-4)
    assert found.l0 == pytest.approx((codes[kept] > 0).sum() / 499, rel=1e-3)
    assert found.dead_share == pytest.approx((~(codes[kept] > 0).any(0)).mean())
    assert (found.n_tokens, found.outlier_share) == (499, pytest.approx(1 / 500))


def test_loss_recovered_is_1_for_a_perfect_reconstruction_and_0_for_none(lm: LM) -> None:
    class Fixed:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def decode(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

    # A random model may well do better with its activations zeroed: then the figure is undefined.
    windows = [[1, *range(5 + shift, 25 + shift)] for shift in range(30)]
    perfect, nothing = loss_recovered(lm, Fixed(1.0), 1, windows), loss_recovered(lm, Fixed(0.0), 1, windows)
    assert (perfect, nothing) in ((None, None), (pytest.approx(1), pytest.approx(0)))


def test_outliers_are_shortened() -> None:
    x = torch.ones((10, 4))
    x[3] = 100
    found, n = shortened(x)
    assert n == 1
    assert torch.equal(found[3], torch.full((4,), 10.0)), "ten medians"
    found[3] = 1
    assert torch.equal(found, torch.ones((10, 4)))
    assert float(x[3, 0]) == 100, "what was given is left as it was"


def test_batches_are_whole() -> None:
    batches = batches_of(torch.arange(10.0)[:, None], 4, seed=0)
    epoch = [next(batches).flatten().tolist() for _ in range(2)]
    assert len({value for batch in epoch for value in batch}) == 8, "no token twice in an epoch"
    again = batches_of(torch.arange(10.0)[:, None], 4, seed=0)
    assert [next(again).flatten().tolist() for _ in range(2)] == epoch
    assert next(batches).flatten().tolist() != epoch[0]


def test_small_corpus_and_bad_layer(lm: LM, tmp_path: Path) -> None:
    work = WorkDirectory(tmp_path, "t", "k")
    with pytest.raises(InputError, match=r"the train part of the corpus has \d+ tokens, 256 are needed"):
        train_sae(lm, DOCUMENTS[:3], 1, PARAMS, tmp_path, work, name="tiny", seed=0)
    with pytest.raises(InputError, match="layer 9 is out of range"):
        train_sae(lm, DOCUMENTS, 9, PARAMS, tmp_path, work, name="tiny", seed=0)
    with pytest.raises(InputError, match=r"context_size: 600 tokens are more than the model's 512"):
        train_sae(lm, DOCUMENTS, 1, PARAMS.model_copy(update={"context_size": 600}), tmp_path, work, name="tiny", seed=0)


def test_non_finite_loss_and_activations_stop_it(lm: LM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = PARAMS.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(InputError, match=r"the SAE's loss became (nan|inf) at step \d+"):
        optimise(torch.randn((3000, 32)).bfloat16(), params, 0, torch.device("cpu"))
    monkeypatch.setattr(training, "read_residual", lambda *args: torch.full((1, 4, 32), float("inf")))
    with pytest.raises(InputError, match="activations after block 1 are not finite"):
        cached_activations(lm, [[1, 5, 6, 7]], 1, PARAMS, WorkDirectory(tmp_path, "t", "k"), "train")
    assert not list(tmp_path.rglob("*.bf16"))
