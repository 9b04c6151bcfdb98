"""SAELens's BatchTopK SAE, its training step computed on the codes that are not zero.

With k of d_sae latents active, all but k / d_sae of the decoder's work, and of both backward passes, multiplies zeros. Only the
encoder's forward product is done in full here. Loss and gradients are those of SAELens's own class (tested), several times faster
on a CPU. Bussmann et al. 2024, arXiv 2412.06410 (BatchTopK); Gao et al. 2024, arXiv 2406.04093 (auxiliary loss).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sae_lens import BatchTopKTrainingSAE
from sae_lens.saes.sae import TrainStepInput, TrainStepOutput
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from gapscope.errors import InputError

Tensor = torch.Tensor

AUX_ROWS = 512
"""Tokens of a batch on which latents that no longer fire learn the error that the others leave."""

AUX_K = 64
"""How many of those latents may fire on one token."""

GATHER_ROWS = 512
"""Rows gathered at a time: small enough that they stay in a core's cache."""


def sparse_product(values: Tensor, starts: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
    """A matrix in compressed rows (``starts`` one longer than it has rows) times a dense one."""
    out: Tensor = embedding_bag(columns, dense, starts, mode="sum", per_sample_weights=values, include_last_offset=True)
    return out


def row_starts(rows: Tensor, n_rows: int) -> Tensor:
    """Where each row begins among entries sorted by row."""
    return torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=n_rows).cumsum(0)])


def _by_column(rows: Tensor, columns: Tensor, values: Tensor, n_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.argsort(columns, stable=True)
    return values[order], row_starts(columns, n_columns), rows[order]


class _Encode(torch.autograd.Function):
    """x @ w + b at the entries that ``pick`` chooses: their values, rows and columns, and the whole product without gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, pick: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pre = torch.addmm(b, x, w)
        chosen = pick(pre)
        rows, columns = chosen // w.shape[1], chosen % w.shape[1]
        ctx.save_for_backward(x, rows, columns)
        ctx.n_columns = w.shape[1]
        ctx.mark_non_differentiable(rows, columns, pre)
        return pre.flatten()[chosen], rows, columns, pre

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_unused: Tensor) -> tuple[None, Tensor, Tensor, None]:
        x, rows, columns = ctx.saved_tensors
        values, starts, order = _by_column(rows, columns, gradient, ctx.n_columns)
        bias = torch.zeros(ctx.n_columns, dtype=x.dtype, device=x.device).index_add_(0, columns, gradient)
        return None, sparse_product(values, starts, order, x).t(), bias, None


class _Decode(torch.autograd.Function):
    """The sparse codes times the decoder ``w`` (d_sae, d_in)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Tensor, columns: Tensor, w: Tensor, n_rows: int) -> Tensor:
        ctx.save_for_backward(values, rows, columns, w)
        return sparse_product(values, row_starts(rows, n_rows), columns, w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, Tensor, None]:
        values, rows, columns, w = ctx.saved_tensors
        pairs = zip(rows.split(GATHER_ROWS), columns.split(GATHER_ROWS), strict=True)
        of_values = torch.cat([(gradient.index_select(0, r) * w.index_select(0, c)).sum(1) for r, c in pairs])
        turned, starts, order = _by_column(rows, columns, values, w.shape[0])
        return of_values, None, None, sparse_product(turned, starts, order, gradient), None


class SparseBatchTopK(BatchTopKTrainingSAE):  # type: ignore[misc]
    """A BatchTopK SAE to be given to SAELens's SAETrainer; saved for inference as a JumpReLU SAE with one threshold."""

    topk_threshold: Tensor

    def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
        """One batch's loss: squared error, and the auxiliary loss of the latents in ``dead_neuron_mask``.

        Raises:
            InputError: the loss is not finite.
        """
        x = step_input.sae_in
        norms = self.W_dec.norm(dim=-1)
        encoder, decoder = self.W_enc * norms, self.W_dec / norms[:, None]
        bias = self.b_enc * norms - self.b_dec @ encoder
        values, rows, columns, pre = _Encode.apply(x, encoder, bias, self._pick)  # type: ignore[no-untyped-call]
        out = _Decode.apply(values, rows, columns, decoder, x.shape[0]) + self.b_dec  # type: ignore[no-untyped-call]
        losses = {"mse_loss": (out - x).pow(2).sum(-1).mean()}
        dead = step_input.dead_neuron_mask
        if dead is not None and bool(dead.any()):
            error = (x - out).detach()[:AUX_ROWS]
            losses["auxiliary_reconstruction_loss"] = self._aux_loss(x[:AUX_ROWS], error, encoder, bias, decoder, dead)
        loss = torch.stack(list(losses.values())).sum()
        if not bool(torch.isfinite(loss)):
            fix = "lower train_sae.learning_rate, or check the observer's activations"
            raise InputError(f"the SAE's loss became {loss.item()} at step {step_input.n_training_steps}", field="train_sae", fix=fix)
        self.topk_threshold = values.detach().min().double() if len(values) else self.topk_threshold
        codes = torch.sparse_coo_tensor(torch.stack([rows, columns]), values.detach(), pre.shape, check_invariants=False)
        return TrainStepOutput(sae_in=x, sae_out=out, feature_acts=codes, hidden_pre=pre, loss=loss, losses=losses)

    def _pick(self, pre: Tensor) -> Tensor:
        """Flat indices, ascending, of the batch's k x rows greatest positive entries."""
        flat = pre.flatten()
        n = int(self.cfg.k * pre.shape[0])
        # Sorting a few candidates is far cheaper than sorting all: those above a bit less than the last batch's threshold.
        candidates = torch.nonzero(flat > 0.8 * float(self.topk_threshold)).squeeze(1)
        if len(candidates) < n:
            candidates = torch.nonzero(flat > 0).squeeze(1)
        if len(candidates) <= n:
            return candidates
        return candidates[torch.topk(flat[candidates], n, sorted=False).indices].sort().values

    def _aux_loss(self, x: Tensor, error: Tensor, encoder: Tensor, bias: Tensor, decoder: Tensor, dead: Tensor) -> Tensor:
        """Squared error of the reconstruction of ``error`` by the dead latents alone, its weight falling with their number."""
        ids = torch.nonzero(dead).squeeze(1)
        k = min(AUX_K, len(ids))
        pre = torch.addmm(bias[ids], x, encoder[:, ids])
        top, places = pre.topk(k, dim=1)
        codes = torch.zeros_like(pre).scatter(1, places, top.relu())
        loss = (codes @ decoder[ids] - error).pow(2).sum(-1).mean()
        scaled: Tensor = self.cfg.aux_loss_coefficient * min(len(ids) / AUX_K, 1.0) * loss
        return scaled

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Set the threshold at which the mean number of active latents on ``x`` (raw activations) is k.

        To be called when the activation scale has been folded into the weights.
        """
        norms = self.W_dec.norm(dim=-1)
        n = int(self.cfg.k * len(x))
        for floor in (0.5 * float(self.topk_threshold), -torch.inf):
            found: list[Tensor] = []
            for rows in x.split(GATHER_ROWS):
                pre = ((rows - self.b_dec) @ self.W_enc + self.b_enc) * norms
                found.append(pre[pre > floor])
            candidates = torch.cat(found)
            if len(candidates) > n:
                break
        # The threshold lies strictly below the n-th greatest value, since JumpReLU fires above it and not at it.
        top = torch.topk(candidates, n + 1).values
        self.topk_threshold = ((top[-1].double() + top[-2].double()) / 2).clamp(min=0)
