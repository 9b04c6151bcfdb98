"""extract-activations on a tiny model.

What must hold:
- a(i, c) is the mean of the SAE's codes over the item's unmasked tokens, as computed item by item with no batch at all;
- batch size, item order and what shares a batch change nothing (1e-5 relative), firing counts nothing at all;
- begin-of-text tokens, first positions and attention sinks are in no masked statistic; counts of what was left out add up;
- control strings in an item are text; an item that is too long is cut and counted, one without countable tokens has a row;
- contexts are whole characters of the item, their activations the SAE's, top ones the strongest, all whatever the order;
- reference and template counts are those of their own tokens; the random control fires as often as the SAE;
- killed at any moment and run again, and run twice, the bytes are the same;
- an SAE that does not fit, or fails the canary, stops the run before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_sae import random_jumprelu, save_tiny_sae

from gapscope.artifacts import CONTEXTS, FIRING, ROWS, rows_digest
from gapscope.batches import plan_batches, plan_shards
from gapscope.competency import saliency
from gapscope.competency.activations import read_rows
from gapscope.competency.contexts import Peaks, Selection, join, peaks_of, pieces
from gapscope.competency.extraction import extract_activations, make_policy, write_activations
from gapscope.competency.random_dictionary import RandomDictionary
from gapscope.competency.reading import Policy, Reader
from gapscope.competency.saliency import empty_template, item_text
from gapscope.documents import part_of, read_documents
from gapscope.errors import InputError
from gapscope.files import dump_json, read_json, sha256_tree
from gapscope.items import Item, write_items
from gapscope.lm import LM, load_lm, pad_batch, read_residual
from gapscope.params import ExtractActivationsParams
from gapscope.sae import LoadedSAE, load_sae
from gapscope.work import WorkDirectory

TEXTS = [
    "The dog ran to the river.",
    "Which of these did the hammer stand next to, the saw or the wall?",
    "owl",
    "<|im_start|>user says </s> and <|im_end|>",
    "日本語のテキスト and 🎉🎉 emoji",
    "שלום, the cat slept under the old tree and the horse did not.",
    "bread, rice and cheese " * 14,
    "The dog ran to the river and the cat slept under the old tree.",
    "a",
]
ITEMS = [Item(f"q{number}", "one" if number % 2 else "two", f"q{number}", text, ("yes", "no"), 0) for number, text in enumerate(TEXTS)]
PARAMS = ExtractActivationsParams(
    max_tokens=64,
    batch_tokens=128,
    reference_tokens=400,
    max_fvu=100.0,
    top_contexts=2,
    quantile_contexts=2,
    reference_contexts=2,
    context_window=9,
)
DOCUMENTS = [
    f"The {a} saw the {b} near the river, number {i}." for i in range(4) for a in ("dog", "cat", "owl") for b in ("saw", "wall", "tree")
]
LENGTH = 64


@pytest.fixture(scope="module")
def lm(tiny_lm_dir: Path) -> LM:
    return load_lm(tiny_lm_dir, device="cpu")


@pytest.fixture(scope="module")
def sae(tiny_sae_dir: Path) -> LoadedSAE:
    return load_sae(tiny_sae_dir)


@dataclass
class Done:
    path: Path
    metrics: dict[str, Any]

    def matrix(self, name: str) -> np.ndarray:
        found: np.ndarray = sp.load_npz(self.path / f"{name}.npz").toarray()
        return found

    def rows(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = ROWS.read(self.path / "rows.parquet").to_pydict()
        return columns

    def contexts(self, *, reference: bool = False) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = CONTEXTS.read(self.path / "contexts.parquet").to_pylist()
        return [row for row in rows if (row["group"] == "reference") == reference]


def extract(lm: LM, sae: LoadedSAE, path: Path, items: list[Item] = ITEMS, documents: list[str] | None = DOCUMENTS, **changes: Any) -> Done:
    output = path / "out"
    output.mkdir(parents=True)
    params = PARAMS.model_copy(update=changes)
    work = WorkDirectory(path / "work", "x", "k")
    named = None if documents is None else {text: f"d{number}" for number, text in enumerate(documents)}
    return Done(output, extract_activations(lm, sae, items, named, params, output, work, name="tiny", seed=1))


@pytest.fixture(scope="module")
def done(lm: LM, sae: LoadedSAE, tmp_path_factory: pytest.TempPathFactory) -> Done:
    return extract(lm, sae, tmp_path_factory.mktemp("done"))


def codes_alone(lm: LM, sae: LoadedSAE, text: str) -> np.ndarray:
    """Codes of every token of one text, begin-of-text first, without any of the code under test."""
    ids = [1, *lm.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]][:LENGTH]
    residual = read_residual(lm, *pad_batch([ids], 2, lm.device), 1)[0]
    pre = residual @ sae.sae.W_enc + sae.sae.b_enc
    found: np.ndarray = torch.where(pre > sae.sae.threshold, pre, 0).numpy()
    return found


def test_saliency_item_by_item(lm: LM, sae: LoadedSAE, done: Done) -> None:
    masked, unmasked, firing = (done.matrix(name) for name in ("saliency", "saliency_unmasked", "firing"))
    assert masked.dtype == np.float32
    assert firing.dtype == np.int32
    for number, text in enumerate(TEXTS):
        codes = codes_alone(lm, sae, text)
        for found, expected in ((masked, codes[1:].mean(0)), (unmasked, codes.mean(0))):
            assert np.abs(found[number] - expected).max() <= 1e-5 * max(expected.max(), 1e-9)
        assert (firing[number] == (codes[1:] > 0).sum(0)).all()


@pytest.mark.parametrize("batch_tokens", [1, 70, 4096])
def test_batches_and_order_change_nothing(lm: LM, sae: LoadedSAE, done: Done, tmp_path: Path, batch_tokens: int) -> None:
    items = ITEMS[::-1]
    other = extract(lm, sae, tmp_path, items, batch_tokens=batch_tokens)
    assert other.rows()["item_id"] == [item.id for item in items], "rows stay in the order of the items"
    for name in ("saliency", "saliency_unmasked", "control_random"):
        mine, theirs = done.matrix(name), other.matrix(name)[::-1]
        # A projection is a difference of large numbers: its error is relative to them.
        assert np.allclose(mine, theirs, rtol=1e-5, atol=1e-5 if name == "control_random" else 1e-6), name
    assert (done.matrix("firing") == other.matrix("firing")[::-1]).all()

    def chosen(run: Done) -> set[tuple[Any, ...]]:
        return {tuple(row[key] for key in ("concept", "item_id", "start", "end", "rank", "group")) for row in run.contexts()}

    assert chosen(done) == chosen(other)
    assert other.metrics["fvu"] == pytest.approx(done.metrics["fvu"], rel=1e-5)


def test_what_was_left_out_is_counted(lm: LM, done: Done) -> None:
    rows = done.rows()
    whole = [1 + len(lm.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]) for text in TEXTS]
    read = [n + m for n, m in zip(rows["n_tokens"], rows["n_masked"], strict=True)]
    assert [a + b for a, b in zip(read, rows["n_truncated"], strict=True)] == whole
    assert rows["n_masked"] == [1] * len(TEXTS)
    assert max(read) == LENGTH
    assert done.metrics["n_items_truncated"] == sum(n > LENGTH for n in whole) == 1
    assert done.metrics["n_tokens"] == sum(rows["n_tokens"])
    assert done.metrics["n_truncated"] == sum(rows["n_truncated"])
    assert done.metrics["l0"] == pytest.approx(done.matrix("firing").sum() / sum(rows["n_tokens"]), rel=1e-6)


def test_sae_without_begin_token_masks_first_positions(lm: LM, tmp_path: Path) -> None:
    sae = load_sae(save_tiny_sae(tmp_path / "sae", prepend_bos=False))
    found = extract(lm, sae, tmp_path)
    rows = found.rows()
    assert rows["n_tokens"][8] == 0, "an item of one token"
    assert found.metrics["n_items_without_tokens"] == 1
    assert not found.matrix("saliency")[8].any()
    assert found.matrix("saliency_unmasked")[8].any()
    ids = lm.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    codes = sae.encode(read_residual(lm, *pad_batch([ids], 2, lm.device), 1)[0]).numpy()
    assert np.allclose(found.matrix("saliency")[0], codes[1:].mean(0), rtol=1e-5)


def test_sinks_are_masked_by_norm(lm: LM, sae: LoadedSAE) -> None:
    residual = read_residual(lm, *pad_batch([Policy(True, 64, np.inf).encode(lm, TEXTS[1]).ids], 2, lm.device), 1)[0]
    norms = residual.norm(dim=1).numpy()
    limit = float(np.sort(norms[1:])[-3])
    policy = Policy(True, 64, limit)
    tokens = Reader(lm, sae, policy).tokens([policy.encode(lm, TEXTS[1])])
    assert tokens.sink.sum() == 2
    assert (np.flatnonzero(tokens.sink) == np.flatnonzero((norms > limit) & (np.arange(len(norms)) > 0))).all()
    assert tokens.masked.sum() == 3


def test_policy_follows_the_sae(lm: LM, sae: LoadedSAE, done: Done) -> None:
    meta = read_json(done.path / "meta.json")
    assert (meta["policy"]["max_tokens"], meta["policy"]["prepend_bos"]) == (64, True)
    assert meta["d_sae"] == 48
    assert read_rows(done.path).item_ids == [item.id for item in ITEMS]
    assert meta["rows_sha256"] == rows_digest([item.id for item in ITEMS], [item.benchmark for item in ITEMS])
    assert meta["sae"]["hook_name"] == "blocks.1.hook_resid_post"
    assert meta["canary"]["fvu"] == pytest.approx(done.metrics["canary"]["fvu"])
    assert meta["policy"]["max_norm"] == pytest.approx(10 * meta["canary"]["norm_median"], rel=1e-6)
    canary: Any = type("C", (), {"norm_median": 2.0})()
    assert make_policy(lm, sae, canary, PARAMS.model_copy(update={"max_tokens": 512})).max_tokens == 64, "the SAE's context"
    assert make_policy(lm, sae, canary, PARAMS.model_copy(update={"mask_sinks": False})).max_norm == float("inf")


def test_contexts_are_the_text_and_its_activations(lm: LM, sae: LoadedSAE, done: Done) -> None:
    rows = done.contexts()
    text_of = {item.id: item.text for item in ITEMS}
    assert {row["group"] for row in rows} == {"top", "quantile"}
    for row in rows:
        text, joined = text_of[row["item_id"]], "".join(row["tokens"])
        assert joined == text[row["start"] : row["end"]]
        assert "�" not in joined
        assert len(row["tokens"]) == len(row["activations"]) <= PARAMS.context_window
        assert max(row["activations"]) > 0
    for number, text in enumerate(TEXTS):
        peaks = codes_alone(lm, sae, text)[1:].max(0)
        for row in (row for row in rows if row["item_id"] == ITEMS[number].id):
            assert max(row["activations"]) == pytest.approx(peaks[row["concept"]], rel=1e-4)


def test_top_contexts_are_the_strongest(lm: LM, sae: LoadedSAE, done: Done) -> None:
    peaks = np.stack([codes_alone(lm, sae, text)[1:].max(0) for text in TEXTS])
    rows = done.contexts()
    for concept in range(48):
        order = [number for number in np.argsort(-peaks[:, concept], kind="stable") if peaks[number, concept] > 0]
        top = [row for row in rows if row["concept"] == concept and row["group"] == "top"]
        found = [peaks[int(row["item_id"][1:]), concept] for row in sorted(top, key=lambda row: row["rank"])]
        assert np.allclose(found, peaks[order[:2], concept], rtol=2e-4)
        rest = [row for row in rows if row["concept"] == concept and row["group"] == "quantile"]
        assert len(rest) == min(2, max(len(order) - 2, 0))
        assert not {row["item_id"] for row in rest} & {row["item_id"] for row in top}
        values = [max(row["activations"]) for row in sorted(rest, key=lambda row: row["rank"])]
        assert values == sorted(values)


@pytest.mark.parametrize("prepend_bos", [True, False])
def test_reference_contexts_are_the_strongest_of_the_corpus(lm: LM, tmp_path: Path, prepend_bos: bool) -> None:
    sae = load_sae(save_tiny_sae(tmp_path / "sae", prepend_bos=prepend_bos))
    documents = [
        *DOCUMENTS,
        *(f"The old {word} and the loaf of bread, 日本語. " * 9 for word in ("horse", "cat", "owl", "dog", "bread", "tree")),
    ]
    rows = extract(lm, sae, tmp_path, documents=documents, reference_tokens=10**6).contexts(reference=True)
    peaks: list[np.ndarray] = []
    long = 0
    for text in (text for text in documents if part_of(text) == "reference"):
        ids = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
        long += len(ids) > 64
        for start in range(0, len(ids), 64 - prepend_bos):
            piece = [1] * prepend_bos + ids[start : start + 64 - prepend_bos]
            if len(piece) >= 8 + prepend_bos:
                peaks.append(sae.encode(read_residual(lm, *pad_batch([piece], 2, lm.device), 1)[0]).numpy()[1:].max(0))
    assert long, "one document is longer than a window"
    for concept in range(48):
        mine = sorted((row for row in rows if row["concept"] == concept), key=lambda row: row["rank"])
        expected = sorted((peak[concept] for peak in peaks if peak[concept] > 0), reverse=True)[:2]
        assert [max(row["activations"]) for row in mine] == pytest.approx(expected, rel=2e-4)
        for row in mine:
            text = documents[int(row["item_id"].removeprefix("corpus:d"))]
            assert "".join(row["tokens"]) == text[row["start"] : row["end"]] != ""


def test_pieces_by_hand() -> None:
    text = "ab 日本 c"
    # Two tokens share 日; 本 is one token; the space before c belongs to no token.
    spans = [(0, 2), (2, 4), (3, 4), (4, 5), (6, 7)]
    assert pieces(text, spans, np.array([1, 2, 5, 3, 4.0])) == (0, 7, ["ab", " 日", "本", " c"], [1, 5, 3, 4])
    assert pieces(text, spans[2:4], np.array([5, 3.0])) == (3, 5, ["日", "本"], [5, 3])
    assert pieces(text, [(0, 2), (2, 2), (2, 4)], np.array([1, 7, 2.0])) == (0, 4, ["ab", " 日"], [7, 2])
    assert pieces(text, [], np.zeros(0)) == (0, 0, [], [])


def test_peaks_by_hand() -> None:
    codes = sp.csr_matrix(np.array([[9, 0, 0], [1, 2, 0], [3, 2, 0], [0, 0, 9], [0, 4, 1]], dtype=np.float32))
    counted = np.array([False, True, True, False, True])
    found = peaks_of(codes, np.array([7, 4]), np.array([3, 2]), counted)
    got = sorted(zip(found.item.tolist(), found.concept.tolist(), found.value.tolist(), found.token.tolist(), strict=True))
    assert got == [(4, 1, 4.0, 1), (4, 2, 1.0, 1), (7, 0, 3.0, 2), (7, 1, 2.0, 1)]
    assert len(peaks_of(codes, np.array([7, 4]), np.array([3, 2]), np.zeros(5, bool))) == 0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_selection_does_not_depend_on_order(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shards = [
        Peaks(
            *(generator.integers(0, high, 30).astype(np.int32) for high in (4,)),
            np.arange(30, dtype=np.int32) + 30 * k,
            generator.integers(1, 6, 30).astype(np.float32),
            np.zeros(30, np.int32),
        )
        for k in range(5)
    ]
    ids = [f"i{number}" for number in range(150)]

    def select(order: list[int], merge: bool) -> list[list[Any]]:
        selection = Selection(ids, top=3, quantiles=4)
        for number in order:
            selection.add(shards[number])
            if merge:
                selection._merge()
        top, top_rank, rest, rank = selection.finish()
        return [column.tolist() for column in (top.concept, top.item, top_rank, rest.concept, rest.item, rank)]

    expected = select([0, 1, 2, 3, 4], merge=False)
    assert select([4, 2, 0, 3, 1], merge=True) == expected
    everything = join(shards)
    for concept in range(4):
        mine = everything[everything.concept == concept]
        value_of = dict(zip(mine.item.tolist(), mine.value.tolist(), strict=True))
        top = [value_of[item] for c, item in zip(expected[0], expected[1], strict=True) if c == concept]
        assert top == sorted(value_of.values(), reverse=True)[:3]
        assert expected[3].count(concept) == min(4, max(len(mine) - 3, 0))


def test_reference_and_template_counts(lm: LM, sae: LoadedSAE, done: Done, tmp_path: Path) -> None:
    documents = [text for text in DOCUMENTS if part_of(text) == "reference"]
    total = np.zeros(48, dtype=int)
    tokens = 0
    for text in documents:
        codes = codes_alone(lm, sae, text)[1:]
        total, tokens = total + (codes > 0).sum(0), tokens + len(codes)
    assert tokens < 400, "all of the part is read"
    table = FIRING.read(done.path / "reference.parquet").to_pydict()
    assert table["n_firing"] == total.tolist()
    assert set(table["n_tokens"]) == {tokens}
    template = FIRING.read(done.path / "template.parquet").to_pydict()
    assert set(template["n_tokens"]) == {0}, "with the text alone, the template is empty"
    lettered = extract(lm, sae, tmp_path, text="text_and_choices")
    template = FIRING.read(lettered.path / "template.parquet").to_pydict()
    codes = codes_alone(lm, sae, "\nA. \nB. ")[1:]
    assert template["n_firing"] == (codes > 0).sum(0).tolist()
    assert set(template["n_tokens"]) == {len(codes)}


def test_item_text_and_template() -> None:
    item = Item("a", "b", "a", "Why?", ("x", "y", "z"), 0)
    assert item_text(item, "text") == "Why?"
    assert item_text(item, "text_and_choices") == "Why?\nA. x\nB. y\nC. z"
    assert empty_template([item, ITEMS[0]], "text_and_choices") == "\nA. \nB. \nC. "


def test_without_corpus_there_is_no_reference(lm: LM, sae: LoadedSAE, tmp_path: Path) -> None:
    found = extract(lm, sae, tmp_path, documents=None)
    assert not (found.path / "reference.parquet").exists()
    assert "reference" not in found.metrics
    assert read_json(found.path / "meta.json")["control_tokens"] > 100, "the control is fitted on the canary's text"


def test_random_control_fires_as_often_as_the_sae(sae: LoadedSAE) -> None:
    x = 2 * torch.randn((2000, 32), generator=torch.Generator().manual_seed(0)) + 1
    control = RandomDictionary.like(sae, x, 1)
    fired = [(dictionary.encode(x) > 0).sum(0) for dictionary in (sae, control)]
    # Projections are centred: about half of the tokens is the most that a latent can fire on.
    positive = ((x - x.mean(0)) @ control.directions > 0).sum(0)
    assert (fired[1] - torch.minimum(fired[0], positive)).abs().max() <= 1
    assert torch.equal(RandomDictionary.like(sae, x, 1).directions, control.directions)
    assert not torch.equal(RandomDictionary.like(sae, x, 2).directions, control.directions)
    assert torch.allclose(control.encode(x[5:6]), control.encode(x)[5:6], atol=1e-5)


def test_runs_are_byte_stable_and_resume(lm: LM, sae: LoadedSAE, done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saliency, "plan_shards", lambda batches, lengths: plan_shards(batches, lengths, shard_tokens=1))
    expected = sha256_tree(extract(lm, sae, tmp_path / "whole").path)
    assert expected == sha256_tree(done.path), "neither do shards change a bit"
    read, calls = saliency.read_shard, 0

    def dying(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (2, 5):
            raise KeyboardInterrupt
        return read(*args)

    monkeypatch.setattr(saliency, "read_shard", dying)
    for attempt in range(2):
        with pytest.raises(KeyboardInterrupt):
            extract(lm, sae, tmp_path / "killed")
        (tmp_path / "killed/out").rename(tmp_path / f"half{attempt}")
    assert sha256_tree(extract(lm, sae, tmp_path / "killed").path) == expected
    assert calls == len(list((tmp_path / "killed" / "work" / "x" / "k").glob("*.npz"))) + 2


def test_canary_stops_the_run(lm: LM, sae: LoadedSAE, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="of the variance unexplained"):
        extract(lm, sae, tmp_path, max_fvu=1e-6)
    assert not list((tmp_path / "out").iterdir())
    assert not list((tmp_path / "work/x/k").iterdir())


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_batches_hold_every_text_once_and_fit(lengths: list[int], limit: int) -> None:
    batches = plan_batches(lengths, limit)
    assert sorted(index for batch in batches for index in batch) == [index for index, length in enumerate(lengths) if length]
    assert all(len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= limit for batch in batches)
    assert [index for shard in plan_shards(batches, lengths, 60) for batch in shard for index in batch] == [i for b in batches for i in b]


@pytest.fixture
def files(tmp_path: Path, tiny_lm_dir: Path, tiny_sae_dir: Path) -> Iterator[dict[str, Path]]:
    write_items(tmp_path / "items.jsonl", ITEMS)
    (tmp_path / "corpus.jsonl").write_text("".join(dump_json({"text": text}) + "\n" for text in DOCUMENTS))
    yield {"model": tiny_lm_dir, "sae": tiny_sae_dir, "items": tmp_path / "items.jsonl", "corpus": tmp_path / "corpus.jsonl"}


def test_publishes_whole_directories_and_clears_its_work(files: dict[str, Path], tmp_path: Path) -> None:
    made = [tmp_path / "a", tmp_path / "b"]
    for output in made:
        write_activations(
            files["model"], files["sae"], files["items"], files["corpus"], PARAMS, output, tmp_path / "work",
            name="tiny", layer=1, seed=1, dtype="float32", device="cpu", threads=1,
        )  # fmt: skip
    assert sha256_tree(made[0]) == sha256_tree(made[1])
    assert not list((tmp_path / "work").rglob("*.npz"))
    assert str(tmp_path) not in (made[0] / "meta.json").read_text()
    assert read_documents(files["corpus"])


def test_command_line(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.cli import main

    monkeypatch.chdir(tmp_path)
    options = [part for name in ("model", "sae", "items") for part in (f"--{name}", str(files[name]))]
    wrong = save_tiny_sae(tmp_path / "wrong", width=16)
    result = CliRunner().invoke(main, ["extract-activations", *options[:2], "--sae", str(wrong), *options[4:], "--output", "act"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "reads 16 numbers a token" in result.stderr
    assert not Path("act").exists()
    random_jumprelu(threshold=0.0, d_sae=512).save_model(tmp_path / "wide")
    result = CliRunner().invoke(main, ["extract-activations", *options, "--output", "act"])
    assert result.exit_code == 1, "a random SAE fails the default canary"
    assert "of the variance unexplained" in result.stderr
