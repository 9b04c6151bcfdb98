"""Fixtures that more than one test file needs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_lm_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny random Llama (3 blocks, 32 wide) with a byte-level BPE tokenizer."""
    from tiny_lm import save_tiny_lm

    return save_tiny_lm(tmp_path_factory.mktemp("tiny_lm"))


@pytest.fixture(scope="session")
def tiny_sae_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a random JumpReLU SAE (48 wide) of the tiny model's block 1."""
    from tiny_sae import save_tiny_sae

    return save_tiny_sae(tmp_path_factory.mktemp("tiny_sae"))
