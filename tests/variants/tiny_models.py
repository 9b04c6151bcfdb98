"""A tiny random model with room for long prompts, a tiny random sentence encoder, and a few families of the committed seeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from tiny_lm import save_tiny_lm, tiny_tokenizer
from transformers import BertConfig, BertModel

from gapscope.params_variants import FineTuneParams, SeedsParams, SftParams, VerifierParams
from gapscope.variants.seed_sets import write_seed_sets

SEEDS = Path(__file__).parents[2] / "data/seeds"
TUNE = FineTuneParams(steps=2, batch_size=2, layers=2, trained_layers=1, max_tokens=2000)
PARAMS = SftParams(
    source="tiny",
    embedder="tiny",
    verifier=VerifierParams(era=TUNE, ira=TUNE, folds=2, contrasts=1),
    generator=FineTuneParams(steps=3, batch_size=2, trained_layers=1, max_tokens=2000),
)


def save_long_lm(path: Path) -> Path:
    save_tiny_lm(path)
    config = json.loads((path / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (path / "config.json").write_text(json.dumps(config))
    return path


def save_encoder(path: Path) -> Path:
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def seed_sets(root: Path, families: int = 3) -> Path:
    """The first families of every domain, split."""
    chosen = root / "chosen"
    chosen.mkdir(parents=True)
    rows = [line for file in sorted(SEEDS.glob("*.jsonl")) for line in file.read_text().splitlines()]
    kept = [line for line in rows if int(json.loads(line)["family"].rpartition("_")[2]) <= families]
    (chosen / "seeds.jsonl").write_text("\n".join(kept) + "\n")
    write_seed_sets(chosen, root / "split", SeedsParams(development=0.34, heldout=0.34), 20)
    shutil.rmtree(chosen)
    return root / "split"
