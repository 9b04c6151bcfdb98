"""The control that a concept has to beat: random directions, each firing as often as the concept whose place it takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gapscope.files import stable_hash
from gapscope.sae import CHUNK_NUMBERS, LoadedSAE


@dataclass(frozen=True)
class RandomDictionary:
    """Random unit directions of centred activations with a threshold each.

    Latent c fires where its projection exceeds a threshold chosen on a sample of text, such that it fires there on as many
    tokens as the SAE's concept c does, or on half of them if that is fewer: the same width, the same sparsity, no training.
    """

    directions: torch.Tensor
    centre: torch.Tensor
    thresholds: torch.Tensor

    @property
    def d_sae(self) -> int:
        """Number of latents."""
        return int(self.directions.shape[1])

    def chunk(self) -> int:
        """How many rows to encode at a time."""
        return max(64, CHUNK_NUMBERS // self.d_sae)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Codes (n, d_sae): the projection where it exceeds the threshold, else 0."""
        with torch.inference_mode():
            projected = torch.addmm(-self.centre @ self.directions, x.float(), self.directions)
            return projected.mul_(projected > self.thresholds)

    @classmethod
    def like(cls, sae: LoadedSAE, x: torch.Tensor, seed: int) -> RandomDictionary:
        """Directions from ``seed``, thresholds from the SAE's firing counts on the activations ``x`` (n, width)."""
        generator = torch.Generator().manual_seed(stable_hash("random-dictionary", seed) % 2**63)
        directions = torch.randn((sae.d_in, sae.d_sae), generator=generator)
        directions = (directions / directions.norm(dim=0)).to(x.device)
        fired = torch.zeros(sae.d_sae, dtype=torch.long, device=x.device)
        for rows in x.split(sae.chunk()):
            fired += (sae.encode(rows) > 0).sum(0)
        centre = x.float().mean(0)
        thresholds = []
        columns = max(1, CHUNK_NUMBERS // len(x))
        for part, counts in zip(directions.split(columns, dim=1), fired.split(columns), strict=True):
            ordered = ((x.float() - centre) @ part).sort(dim=0, descending=True).values
            # Halfway between the greatest projection that must not fire and the least that must, and a little above: texts
            # that begin alike have equal projections, which then fall on one side together, whatever the last bits.
            silent = ordered.gather(0, counts.clamp(max=len(x) - 1)[None])[0]
            firing = ordered.gather(0, (counts - 1).clamp(min=0)[None])[0]
            thresholds.append((1.0001 * (silent + firing) / 2).clamp(min=1e-6))
        return cls(directions, centre, torch.cat(thresholds))
