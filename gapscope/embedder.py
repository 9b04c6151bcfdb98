"""Sentence embeddings: how alike two texts are in meaning, by a small encoder (all-MiniLM-L6-v2 in the default)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.errors import InputError
from gapscope.lm import PICKLED, pick_device

MAX_TOKENS = 256
BATCH_TOKENS = 2048
DIGITS = 5
"""Embeddings are rounded, so that their last bits, which depend on the batch, do not travel."""


class Embedder:
    """Texts to unit vectors: the mean of the encoder's last hidden states over the tokens of the text, normalised."""

    def __init__(self, directory: Path, device: str = "auto") -> None:
        """Load an encoder in the Hugging Face layout; raises InputError where there is none, or only pickled weights."""
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging as hf_logging

        if not (directory / "config.json").is_file() or not any(directory.glob("*.safetensors")):
            pickled = any(path.suffix in PICKLED for path in directory.glob("*"))
            reason = "holds pickled weights, which are never opened" if pickled else "holds no sentence encoder in safetensors"
            raise InputError(reason, file=directory)
        hf_logging.disable_progress_bar()
        logging.getLogger("transformers").setLevel(logging.ERROR)
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
            model = AutoModel.from_pretrained(directory, local_files_only=True, trust_remote_code=False, use_safetensors=True)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"cannot load this encoder: {str(error).splitlines()[0]}", file=directory) from error
        self._device = pick_device(device)
        self._model: Any = model.float().eval().requires_grad_(False).to(self._device)
        self._known: dict[str, np.ndarray] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Embed texts not seen before, shortest first, in batches of like length."""
        new = sorted({text for text in texts if text.strip()} - self._known.keys(), key=lambda text: (len(text), text))
        while new:
            longest = min(MAX_TOKENS, len(new[min(len(new), 64) - 1]) // 3 + 4)
            size = max(1, min(64, BATCH_TOKENS // longest))
            batch, new = new[:size], new[size:]
            self._known |= dict(zip(batch, self._embed(batch), strict=True))

    def _embed(self, texts: list[str]) -> np.ndarray:
        import torch

        encoded = self._tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(self._device)
        with torch.inference_mode():
            states = self._model(**encoded).last_hidden_state
        mask = encoded["attention_mask"].unsqueeze(-1)
        mean = (states * mask).sum(1) / mask.sum(1)
        unit = torch.nn.functional.normalize(mean, dim=-1)
        return np.round(unit.cpu().numpy().astype(np.float64), DIGITS)

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of texts (len(texts) x width), float64; zeros for a text without words."""
        self.learn(texts)
        nothing = np.zeros(int(self._model.config.hidden_size))
        return np.stack([self._known.get(text, nothing) for text in texts])

    def cosine(self, text: str, other: str) -> float:
        """Cosine of the angle between two texts; 0 where either is empty."""
        if not text.strip() or not other.strip():
            return 0.0
        self.learn([text, other])
        return float(self._known[text] @ self._known[other])
