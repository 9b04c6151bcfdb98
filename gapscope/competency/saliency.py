"""extract-activations: how much every concept is present in every item, and where.

A run goes through a plan of whole batches in shards. A shard holds the sparse codes of its tokens and is stored at once, so that
a killed run goes on where it was; item means, firing counts and example contexts are then sparse products over shards, one
shard in memory at a time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gapscope.batches import plan_batches, plan_shards
from gapscope.competency.reading import Quality, Reader, sparse_codes, text_firing, text_means
from gapscope.items import Item
from gapscope.lm import Encoding
from gapscope.progress import bar
from gapscope.work import WorkDirectory

COLUMNS = ("texts", "n_tokens", "n_truncated", "masked", "sink")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def item_text(item: Item, what: str) -> str:
    """What is read of an item: its text, and with ``text_and_choices`` a lettered line for each choice after it."""
    return item.text + _choice_lines(list(item.choices)) if what == "text_and_choices" else item.text


def empty_template(items: list[Item], what: str) -> str:
    """The template with nothing filled in, with as many choices as the item that has most."""
    return _choice_lines([""] * max(len(item.choices) for item in items)) if what == "text_and_choices" else ""


def _choice_lines(choices: list[str]) -> str:
    return "".join(f"\n{LETTERS[number % len(LETTERS)]}. {choice}" for number, choice in enumerate(choices))


@dataclass(frozen=True)
class Shard:
    """What reading some texts gave. Texts stand in the order of ``texts``, their tokens one after the other.

    Attributes:
        texts: index of each text in the list that was planned.
        n_tokens, n_truncated: tokens of each text that were read, and that did not fit.
        masked, sink: per token, see :class:`gapscope.competency.reading.Tokens`.
        codes: CSR float32 (tokens, d_sae).
        controls: control dictionary -> CSR float32 (texts, its d_sae), means over unmasked tokens.
        quality: how well the SAE reconstructs a sample of the tokens.
    """

    texts: np.ndarray
    n_tokens: np.ndarray
    n_truncated: np.ndarray
    masked: np.ndarray
    sink: np.ndarray
    codes: sp.csr_matrix
    controls: dict[str, sp.csr_matrix]
    quality: Quality

    def to_bytes(self) -> bytes:
        """The shard as an uncompressed .npz."""
        arrays = {name: getattr(self, name) for name in COLUMNS}
        for name, matrix in {"codes": self.codes, **self.controls}.items():
            arrays |= {f"{name}.{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
            arrays[f"{name}.shape"] = np.array(matrix.shape)
        arrays["quality"] = np.array([self.quality.n, self.quality.error, self.quality.squares])
        arrays["quality.total"] = self.quality.total
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Shard:
        """Undo :meth:`to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            names = [name.removesuffix(".shape") for name in arrays.files if name.endswith(".shape")]
            matrices = {
                name: sp.csr_matrix(
                    (arrays[f"{name}.data"], arrays[f"{name}.indices"], arrays[f"{name}.indptr"]), shape=tuple(arrays[f"{name}.shape"])
                )
                for name in names
            }
            n, error, squares = arrays["quality"].tolist()
            return cls(
                texts=arrays["texts"],
                n_tokens=arrays["n_tokens"],
                n_truncated=arrays["n_truncated"],
                masked=arrays["masked"],
                sink=arrays["sink"],
                codes=matrices.pop("codes"),
                controls=matrices,
                quality=Quality(int(n), error, squares, arrays["quality.total"]),
            )


def read_shard(reader: Reader, batches: list[list[int]], encode: Callable[[int], Encoding]) -> Shard:
    """Read a shard's batches with the observer; ``encode`` gives the tokens of a text by its index."""
    parts: list[Shard] = []
    for batch in batches:
        encodings = [encode(index) for index in batch]
        tokens = reader.tokens(encodings)
        controls = {
            name: text_means(sparse_codes(dictionary, tokens.x), tokens.n_tokens, ~tokens.masked)
            for name, dictionary in reader.controls.items()
        }
        n_truncated = np.array([encoding.n_truncated for encoding in encodings])
        codes, quality = sparse_codes(reader.sae, tokens.x), Quality.of(reader.sae, tokens)
        parts.append(Shard(np.array(batch), tokens.n_tokens, n_truncated, tokens.masked, tokens.sink, codes, controls, quality))
    quality = Quality.empty(reader.sae.d_in)
    for part in parts:
        quality += part.quality
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in ("texts", "n_tokens", "n_truncated", "masked", "sink")
    }
    controls = {name: sp.vstack([part.controls[name] for part in parts], format="csr") for name in reader.controls}
    return Shard(**columns, codes=sp.vstack([part.codes for part in parts], format="csr"), controls=controls, quality=quality)


def read_all(
    reader: Reader, lengths: list[int], encode: Callable[[int], Encoding], batch_tokens: int, work: WorkDirectory, name: str
) -> Iterator[Shard]:
    """Read texts of the given lengths shard by shard, each computed once for a work directory; texts of length 0 are not read."""
    shards = plan_shards(plan_batches(lengths, batch_tokens), lengths)
    with bar(f"reading {name}", sum(lengths), "tok") as progress:
        for number, batches in enumerate(shards):
            data = work.shard(f"{name}-{number:05d}.npz", lambda batches=batches: read_shard(reader, batches, encode).to_bytes())  # type: ignore[misc]
            shard = Shard.from_bytes(data)
            yield shard
            progress.update(int(shard.n_tokens.sum()))


class Assembly:
    """Item by concept matrices and per-item counts, gathered from shards in any order into the order of the items.

    ``n_firing`` counts tokens by concept, the other arrays count tokens by item.
    """

    def __init__(self, n_items: int, d_sae: int) -> None:
        self._shape = (n_items, d_sae)
        self._texts: list[np.ndarray] = []
        self._matrices: dict[str, list[sp.csr_matrix]] = {}
        self.n_firing = np.zeros(d_sae, dtype=np.int64)
        self.n_tokens, self.n_masked, self.n_truncated, self.n_sinks = (np.zeros(n_items, dtype=np.int64) for _ in range(4))

    def add(self, shard: Shard) -> None:
        """Pool a shard's codes over its items."""
        text = np.repeat(np.arange(len(shard.texts)), shard.n_tokens)
        counted = ~shard.masked
        matrices = {
            "saliency": text_means(shard.codes, shard.n_tokens, counted),
            "saliency_unmasked": text_means(shard.codes, shard.n_tokens, np.ones_like(counted)),
            "firing": text_firing(shard.codes, shard.n_tokens, counted),
        }
        for name, matrix in (matrices | {f"control_{name}": found for name, found in shard.controls.items()}).items():
            self._matrices.setdefault(name, []).append(matrix)
        self._texts.append(shard.texts)
        self.n_firing += shard.codes[counted].getnnz(axis=0)
        self.n_tokens[shard.texts] = np.bincount(text[counted], minlength=len(shard.texts))
        self.n_masked[shard.texts] = np.bincount(text[shard.masked], minlength=len(shard.texts))
        self.n_sinks[shard.texts] = np.bincount(text[shard.sink], minlength=len(shard.texts))
        self.n_truncated[shard.texts] = shard.n_truncated

    def matrices(self) -> Iterator[tuple[str, sp.csr_matrix]]:
        """Each matrix (items, concepts) by name; items that were in no shard have an empty row. Can be gone through once."""
        texts = np.concatenate(self._texts)
        for name in sorted(self._matrices):
            stacked = sp.vstack(self._matrices.pop(name), format="csr")
            row_of = np.full(self._shape[0], len(texts))
            row_of[texts] = np.arange(len(texts))
            empty = sp.csr_matrix((1, stacked.shape[1]), dtype=stacked.dtype)
            yield name, sp.vstack([stacked, empty], format="csr")[row_of]


def totals(assembly: Assembly) -> dict[str, Any]:
    """What was read and what was left out, over all items."""
    return {
        "n_items": len(assembly.n_tokens),
        "n_tokens": int(assembly.n_tokens.sum()),
        "n_masked": int(assembly.n_masked.sum()),
        "n_sinks": int(assembly.n_sinks.sum()),
        "n_truncated": int(assembly.n_truncated.sum()),
        "n_items_truncated": int((assembly.n_truncated > 0).sum()),
        "n_items_without_tokens": int((assembly.n_tokens == 0).sum()),
    }
