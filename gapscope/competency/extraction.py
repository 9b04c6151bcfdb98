"""The extract-activations stage as one function: from model, SAE, items and corpus to every artifact of DESIGN's contract.

The canary comes first and can stop the run. Then the reference corpus and the empty template are read, then the items, with the
control dictionaries applied to the same activations. No later stage loads the observer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gapscope.artifacts import CONTEXTS, ROWS, rows_digest
from gapscope.canary import Canary, require_canary, run_canary
from gapscope.competency.background import Counts, Reference, control_sample, read_template, write_counts
from gapscope.competency.context_table import Contexts, context_table
from gapscope.competency.contexts import Selection, peaks_of
from gapscope.competency.random_dictionary import RandomDictionary
from gapscope.competency.reading import Dictionary, Policy, Quality, Reader
from gapscope.competency.saliency import Assembly, Shard, empty_template, item_text, read_all, totals
from gapscope.documents import read_documents
from gapscope.files import atomic_directory, write_csr, write_json
from gapscope.items import Item, read_items
from gapscope.lm import LM, Encoding, load_lm
from gapscope.params import ExtractActivationsParams
from gapscope.sae import MAX_NORM_RATIO, LoadedSAE, check_fits, load_sae
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory, work_key

SAE_FIELDS = ("id", "architecture", "d_in", "d_sae", "hook_name", "layer", "prepend_bos", "context_size")


@dataclass(frozen=True)
class Run:
    """Everything that the parts of a run share."""

    reader: Reader
    items: list[Item]
    params: ExtractActivationsParams
    work: WorkDirectory

    def encode(self, index: int) -> Encoding:
        """The tokens of one item."""
        return self.reader.policy.encode(self.reader.lm, item_text(self.items[index], self.params.text))

    def contexts(self) -> Contexts:
        """How the items' example contexts are cut."""
        return Contexts(
            item_ids=[item.id for item in self.items],
            text=lambda index: item_text(self.items[index], self.params.text),
            spans=lambda index: self.encode(index).offsets,
            window=self.params.context_window,
            first_token=int(self.reader.policy.prepend_bos),
        )

    def shards(self, lengths: list[int]) -> Iterator[Shard]:
        """The items' shards, computed the first time and read back after that."""
        return read_all(self.reader, lengths, self.encode, self.params.batch_tokens, self.work, "items")


def write_activations(
    model_dir: Path,
    sae_dir: Path,
    items_file: Path,
    corpus: Path | None,
    params: ExtractActivationsParams,
    output: Path,
    work_root: Path,
    *,
    name: str,
    layer: int | None,
    seed: int,
    dtype: str,
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Load everything from files, run :func:`extract_activations`, and publish ``output`` when it is whole."""
    use_threads(threads)
    items = read_items(items_file)
    documents = None if corpus is None else read_documents(corpus)
    lm = load_lm(model_dir, dtype, device)
    sae = load_sae(sae_dir, str(lm.device))
    settings = params.model_dump() | {"seed": seed, "dtype": dtype, "threads": threads, "device": str(lm.device)}
    inputs = [model_dir, sae_dir, items_file, *([] if corpus is None else [corpus])]
    work = WorkDirectory(work_root, "extract-activations", work_key(settings, inputs))
    with atomic_directory(output) as directory:
        metrics = extract_activations(lm, sae, items, documents, params, directory, work, name=name, layer=layer, seed=seed)
    work.clear()
    return metrics


def extract_activations(
    lm: LM,
    sae: LoadedSAE,
    items: list[Item],
    documents: Mapping[str, str] | None,
    params: ExtractActivationsParams,
    output: Path,
    work: WorkDirectory,
    *,
    name: str,
    layer: int | None = None,
    seed: int,
) -> dict[str, Any]:
    """Write saliency, firing, rows, contexts, reference, template, controls and meta.json into ``output``, a directory.

    Args:
        documents: the corpus as of :func:`gapscope.documents.read_documents`; None for no reference.
        name: what meta.json calls the observer.
        layer: the layer that the SAE must be of, if that is known.
        work: where shards are kept between runs.
        seed: of the control dictionaries.

    Returns:
        The headline metrics.

    Raises:
        InputError: the SAE does not fit the model, fails the canary, or an activation is not finite.
    """
    check_fits(lm, sae, layer)
    canary = run_canary(lm, sae)
    require_canary(lm, sae, canary, params.max_fvu)
    policy = make_policy(lm, sae, canary, params)
    plain = Reader(lm, sae, policy)
    reference = None if documents is None else Reference.of(plain, documents, params, work)
    counts, examples = (None, CONTEXTS.schema.empty_table()) if reference is None else reference.read(params)
    sample = control_sample(plain, reference) if params.random_control else None
    controls: dict[str, Dictionary] = {} if sample is None else {"random": RandomDictionary.like(sae, sample, seed)}
    run = Run(Reader(lm, sae, policy, controls), items, params, work)
    assembly, quality, selection = read_items_of(run)
    write_matrices(output, assembly, items)
    lengths = (assembly.n_tokens + assembly.n_masked).tolist()
    contexts = pa.concat_tables([context_table(run.contexts(), run.shards(lengths), selection), examples])
    CONTEXTS.write(output / "contexts.parquet", CONTEXTS.sorted(contexts))
    for part, found in (("reference", counts), ("template", read_template(plain, empty_template(items, params.text)))):
        if found is not None:
            write_counts(output / f"{part}.parquet", found)
    metrics = headline(assembly, quality, canary, counts)
    more = {"totals": metrics, "control_tokens": 0 if sample is None else len(sample)}
    write_json(output / "meta.json", describe(run, canary, name) | more)
    return metrics


def make_policy(lm: LM, sae: LoadedSAE, canary: Canary, params: ExtractActivationsParams) -> Policy:
    """The token policy that the SAE was trained for, bounded by params and by the model's positions."""
    longest = min(limit for limit in (params.max_tokens, sae.context_size, lm.max_positions) if limit is not None)
    return Policy(sae.prepend_bos, longest, MAX_NORM_RATIO * canary.norm_median if params.mask_sinks else float("inf"))


def read_items_of(run: Run) -> tuple[Assembly, Quality, Selection]:
    """Read all items and pool them; also which (concept, item) pairs become example contexts."""
    ids = [item.id for item in run.items]
    selection = Selection(ids, run.params.top_contexts, run.params.quantile_contexts)
    assembly = Assembly(len(run.items), run.reader.sae.d_sae)
    quality = Quality.empty(run.reader.sae.d_in)
    lengths = [len(run.encode(index).ids) for index in range(len(run.items))]
    for shard in run.shards(lengths):
        assembly.add(shard)
        selection.add(peaks_of(shard.codes, shard.texts, shard.n_tokens, ~shard.masked))
        quality += shard.quality
    return assembly, quality, selection


def write_matrices(output: Path, assembly: Assembly, items: list[Item]) -> None:
    """Write rows.parquet and the item by concept matrices."""
    for name, matrix in assembly.matrices():
        write_csr(output / f"{name}.npz", matrix)
    ROWS.write(
        output / "rows.parquet",
        {
            "item_id": [item.id for item in items],
            "benchmark": [item.benchmark for item in items],
            "n_tokens": assembly.n_tokens,
            "n_masked": assembly.n_masked,
            "n_truncated": assembly.n_truncated,
        },
    )


def headline(assembly: Assembly, quality: Quality, canary: Canary, reference: Counts | None) -> dict[str, Any]:
    """The metrics: what was read, how sparse and how faithful the codes are."""
    metrics = totals(assembly)
    metrics["canary"] = {"fvu": canary.fvu, "l0": canary.l0, "outlier_share": canary.outlier_share}
    metrics["n_concepts_seen"] = int((assembly.n_firing > 0).sum())
    if metrics["n_tokens"]:
        metrics["l0"] = float(assembly.n_firing.sum()) / metrics["n_tokens"]
    if (fvu := quality.fvu) is not None:
        metrics["fvu"] = fvu
    if reference is not None:
        metrics["reference"] = {"n_tokens": reference.n_tokens, "n_concepts_seen": int((reference.n_firing > 0).sum())}
    return metrics


def describe(run: Run, canary: Canary, name: str) -> dict[str, Any]:
    """What meta.json says of observer, SAE, token policy and canary."""
    sae, policy = run.reader.sae, run.reader.policy
    return {
        "observer": {"name": name, "n_layers": run.reader.lm.n_layers, "width": run.reader.lm.width, "dtype": str(run.reader.lm.dtype)[6:]},
        "d_sae": sae.d_sae,
        "rows_sha256": rows_digest([item.id for item in run.items], [item.benchmark for item in run.items]),
        "sae": {name: getattr(sae, name) for name in SAE_FIELDS},
        "policy": {
            "text": run.params.text,
            "prepend_bos": policy.prepend_bos,
            "max_tokens": policy.max_tokens,
            "max_norm_ratio": MAX_NORM_RATIO if run.params.mask_sinks else None,
            "max_norm": policy.max_norm if run.params.mask_sinks else None,
        },
        "canary": asdict(canary) | {"max_fvu": run.params.max_fvu},
        "controls": sorted(run.reader.controls),
    }
