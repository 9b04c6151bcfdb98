"""Small SAELens SAEs with random weights, in SAELens's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sae_lens import JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.saes.sae import SAEMetadata

METADATA: dict[str, Any] = {"model_name": "tiny", "hook_name": "blocks.1.hook_resid_post", "context_size": 64, "prepend_bos": True}
D_SAE = 48


def random_jumprelu(width: int = 32, d_sae: int = D_SAE, threshold: float = 1.5, seed: int = 0, **metadata: Any) -> JumpReLUSAE:
    """Random unit decoder rows, encoder their transpose, one threshold."""
    generator = torch.Generator().manual_seed(seed)
    sae = JumpReLUSAE(JumpReLUSAEConfig(d_in=width, d_sae=d_sae, metadata=SAEMetadata(**(METADATA | metadata))))
    directions = torch.randn((d_sae, width), generator=generator)
    directions = directions / directions.norm(dim=1, keepdim=True)
    sae.W_dec.data, sae.W_enc.data = directions, directions.t().contiguous()
    sae.b_enc.data = 0.1 * torch.randn(d_sae, generator=generator)
    sae.threshold.data = torch.full((d_sae,), threshold)
    return sae


def save_tiny_sae(path: Path, **options: Any) -> Path:
    """Save such an SAE, ready for ``load_sae``."""
    random_jumprelu(**options).save_model(path)
    return path
