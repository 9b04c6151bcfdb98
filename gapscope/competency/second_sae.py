"""A second, smaller SAE of an observer's layer, trained from another seed, and its saliency on the same items.

Enough of one to ask whether findings are the model's or one dictionary's; it is kept nowhere else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gapscope.competency.reading import Policy, Reader
from gapscope.competency.saliency import Assembly, item_text, read_all
from gapscope.competency.study import Features
from gapscope.documents import read_documents
from gapscope.errors import InputError
from gapscope.files import read_json
from gapscope.items import Item
from gapscope.lm import LM, Encoding, load_lm
from gapscope.params import TrainSaeParams
from gapscope.sae import LoadedSAE, check_fits, load_sae
from gapscope.threads import use_threads
from gapscope.work import WorkDirectory, work_key

SECOND = "second_sae"
"""The name of its feature set."""

SEED_STEP = 1
"""How far its seed is from that of the first SAE."""


@dataclass(frozen=True)
class Machine:
    """How the observer is run."""

    dtype: str
    device: str
    threads: int


@dataclass(frozen=True)
class SecondSae:
    """The second SAE's saliency on the items, and how well it stands for held-out activations (fvu, l0, ...)."""

    features: Features
    quality: dict[str, float]


def read_with_second_sae(
    model_dir: Path, corpus: Path, activations: Path, items: list[Item], params: TrainSaeParams, batch_tokens: int, work_root: Path,
    *, seed: int, machine: Machine,
) -> SecondSae:  # fmt: skip
    """Train on the layer that ``activations`` were read from, and read the items again under the same token policy.

    Raises:
        InputError: model, corpus or meta.json is absent, damaged or of another run.
    """
    use_threads(machine.threads)
    lm = load_lm(model_dir, machine.dtype, machine.device)
    meta = read_json(activations / "meta.json")
    try:
        policy, layer = meta["policy"], int(meta["sae"]["layer"])
        text, longest, bos = str(policy["text"]), int(policy["max_tokens"]), bool(policy["prepend_bos"])
        limit = float("inf") if policy["max_norm"] is None else float(policy["max_norm"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"says nothing of {error}", file=activations / "meta.json", fix="run extract-activations again") from error
    settings = params.model_dump() | {"seed": seed, "layer": layer, "policy": policy, **asdict(machine)}
    work = WorkDirectory(work_root, "validity", work_key(settings, [model_dir, corpus, activations / "rows.parquet"]))
    sae, quality = _train(lm, corpus, layer, params, work, seed)
    check_fits(lm, sae, layer)
    reader = Reader(lm, sae, Policy(bos, longest, limit))
    features = _read(reader, [item_text(item, text) for item in items], batch_tokens, work)
    work.clear()
    return SecondSae(features, quality)


def _train(lm: LM, corpus: Path, layer: int, params: TrainSaeParams, work: WorkDirectory, seed: int) -> tuple[LoadedSAE, dict[str, float]]:
    from gapscope.sae_training import train_sae

    directory = work.path / "sae"
    directory.mkdir(exist_ok=True)
    trained = train_sae(lm, list(read_documents(corpus)), layer, params, directory, work, name="second", seed=seed + SEED_STEP)
    return load_sae(directory, str(lm.device)), {
        "fvu": trained.heldout.fvu,
        "l0": trained.heldout.l0,
        "dead_share": trained.heldout.dead_share,
    }


def _read(reader: Reader, texts: list[str], batch_tokens: int, work: WorkDirectory) -> Features:
    def encode(index: int) -> Encoding:
        return reader.policy.encode(reader.lm, texts[index])

    assembly = Assembly(len(texts), reader.sae.d_sae)
    lengths = [len(encode(index).ids) for index in range(len(texts))]
    for shard in read_all(reader, lengths, encode, batch_tokens, work, "second"):
        assembly.add(shard)
    saliency = dict(assembly.matrices())["saliency"].astype("float64")
    saliency.eliminate_zeros()
    return Features.of(SECOND, saliency)
