"""What makes an SAE's concepts tell more of unseen items than random directions do? Chosen on one half, reported on the other.

    python bench/pooling.py --data data --params params.yaml [--observer NAME]

Reads a finished run (items, activations with their random control, coverage, scores; nothing is written). The families and the
subjects are cut in halves. On the first halves every variant of both dictionaries is measured: poolings (mean, share of tokens,
log, whether it fires at all, mean over the tokens on which it fires), only rare or only common features, only features with a
good label, sums over families of features. The best of each dictionary is then measured once on the other halves.

The measure is ``item_r``: inside strata, the correlation of items' scores with what effects found on other items predict for
them. Beside it the held-out effect of the lowest and highest hundred.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import read_matrix
from gapscope.competency.features import item_words, random_dictionary
from gapscope.competency.heldout import item_r
from gapscope.competency.inference import contrast
from gapscope.competency.item_labels import ItemWords, detection_scores
from gapscope.competency.study import Features, Study, ends, merge, read_study, view
from gapscope.files import stable_hash
from gapscope.params import load_params

N_ENDS, N_FAMILIES, RARE, GOOD_LABEL = 100, 400, 150.0, 0.8


def pooled(features: Features, tokens: np.ndarray, firing: sp.csr_matrix | None) -> Iterator[Features]:
    """The set with its saliency pooled otherwise; what needs firing counts is left out where there are none."""
    mean = features.matrix
    yield replace(features, name="mean")
    scale = np.median(mean.data)
    yield replace(features, name="log", matrix=transformed(mean, np.log1p(mean.data / scale)))
    yield replace(features, name="fires", matrix=transformed(mean, np.ones_like(mean.data)))
    if firing is not None:
        share = sp.diags(1 / np.maximum(tokens, 1)) @ firing
        yield replace(features, name="share", matrix=sp.csr_matrix(share))
        active = mean.multiply(sp.diags(tokens.astype(float)) @ firing.power(-1)).tocsr()
        active.eliminate_zeros()
        yield replace(features, name="active mean", matrix=active)


def transformed(matrix: sp.csr_matrix, data: np.ndarray) -> sp.csr_matrix:
    """The matrix with other stored values."""
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def filtered(study: Study, features: Features, words: ItemWords) -> Iterator[Features]:
    """Only rare features, only common ones, only those with a good label; and sums over families of like features."""
    subject = next(iter(study.subjects.values()))
    support = view(study, features, subject, with_p=False).one.support
    yield replace(features, name="rare", excluded=features.excluded | (support > RARE))
    yield replace(features, name="common", excluded=features.excluded | (support <= RARE))
    labels = detection_scores(features.matrix, np.arange(features.matrix.shape[1]), words)
    yield replace(features, name="labelled", excluded=features.excluded | ~(labels >= GOOD_LABEL))
    yield families(features, study.seed)


def families(features: Features, seed: int) -> Features:
    """Sums over clusters of features that are active on the same items (k-means of unit columns)."""
    from sklearn.cluster import MiniBatchKMeans

    columns = features.matrix.T.toarray().astype(np.float32)
    columns /= np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1e-9)
    codes = MiniBatchKMeans(N_FAMILIES, n_init=1, random_state=seed, batch_size=1024).fit_predict(columns)
    joined = sp.csr_matrix((np.ones(len(codes)), (np.arange(len(codes)), codes)), shape=(len(codes), N_FAMILIES))
    return Features.of("families", sp.csr_matrix(features.matrix @ joined))


def measure(study: Study, features: Features, subjects: list[str], chosen: np.ndarray) -> tuple[float, float, float]:
    """item_r, and the effect of the lowest and highest features, between two halves of the chosen items; means over subjects."""
    half = study.half(1)
    found = []
    for slug in subjects:
        sides = [view(study, features, study.subjects[slug], chosen & side, with_p=False) for side in (half, ~half)]
        for finding, testing in (sides, sides[::-1]):
            effect = contrast(merge(testing.suite, ends(finding.sureness, N_ENDS)), with_p=False).adjusted
            found.append((item_r(features.name, slug, finding, testing).value, *effect))
    return tuple(np.nanmean(found, axis=0).tolist())


def say(name: str, variant: str, numbers: tuple[float, float, float], more: str = "") -> None:
    """Print a line of the table."""
    print(f"{name:<9} {variant:<12} item_r {numbers[0]:+.3f}   lowest {numbers[1]:+.4f}   highest {numbers[2]:+.4f}{more}", flush=True)


def main() -> None:
    """Run the search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--observer")
    args = parser.parse_args()
    params = load_params(args.params)
    key = args.observer or sorted(params.observers)[0]
    activations = args.data / "activations" / key
    study = read_study(
        activations, args.data / "items/items.jsonl", args.data / "coverage" / key, args.data / "scores", sorted(params.models),
        params.performance, params.seed,
    )  # fmt: skip
    firing = read_matrix(activations, "firing", study.suite.rows)
    random = random_dictionary(activations, study.suite.rows, firing.shape[1])
    if random is None:
        raise SystemExit("the run has no random dictionary (extract_activations.random_control)")
    words = ItemWords.of(item_words(study.items), study.suite.rows.item_ids)
    order = sorted(study.subjects, key=lambda slug: stable_hash("subjects", study.seed, slug))
    halves = (order[: (len(order) + 1) // 2], order[len(order) // 2 :] if len(order) == 1 else order[(len(order) + 1) // 2 :])
    choosing, tokens = study.half(0), study.suite.rows.n_tokens
    print(f"choose on {int(choosing.sum())} items and {halves[0]}\nreport on {int((~choosing).sum())} items and {halves[1]}")
    for name, base, counts in (("concepts", study.concepts(), firing), ("random", random, None)):
        variants = [*pooled(base, tokens, counts), *filtered(study, base, words)]
        results = {variant.name: measure(study, variant, halves[0], choosing) for variant in variants}
        for title, numbers in results.items():
            say(name, title, numbers)
        best = max(results, key=lambda title: results[title][0])
        for variant in variants:
            if variant.name in {best, "mean"}:
                item_r, low, high = measure(study, variant, halves[1], ~choosing)
                print(
                    f"{name:<9} {variant.name:<12} item_r {item_r:+.3f}   lowest {low:+.4f}   highest {high:+.4f}   << on the other halves"
                )


if __name__ == "__main__":
    main()
