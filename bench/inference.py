"""Speed and memory of performance at 100,000 items x 65,536 concepts, 64 concepts an item, and how its p compare with draws.

    python bench/inference.py            # the sizes above; about half a minute on two cores
    python bench/inference.py --items 5000 --concepts 4096

Prints seconds and the peak resident memory after each step: the reference columns with intervals, all calibrated columns,
and 1,000 permutations of all concepts by brute force, one sparse product a block of draws. Then the closed form against
those draws: its variance, and how often draws are beyond the p that it gives. Nothing is written.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

from gapscope.competency.inference import Calibrated, calibrate
from gapscope.competency.intervals import reference
from gapscope.competency.permutation import draw_statistics
from gapscope.competency.units import length_strata

MIN_N_EFF = 20.0
LEVELS = (0.5, 0.1, 0.01)


@contextmanager
def measured(step: str) -> Iterator[None]:
    """Print the seconds that a step takes and the greatest memory the process has had so far."""
    start = time.perf_counter()
    yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{step:<28} {time.perf_counter() - start:7.2f} s   peak {peak:5.2f} GiB", flush=True)


def made_saliency(rng: np.random.Generator, n_items: int, n_concepts: int, per_item: int) -> sp.csr_matrix:
    """Concepts of lognormal frequency, saliency gamma."""
    frequency = np.cumsum(rng.lognormal(0, 1.5, n_concepts))
    concepts = np.searchsorted(frequency / frequency[-1], rng.random(n_items * per_item))
    values = rng.gamma(0.7, size=n_items * per_item).astype(np.float32) + np.float32(1e-3)
    return sp.csr_matrix((values, (np.repeat(np.arange(n_items), per_item), concepts)), shape=(n_items, n_concepts))


def brute_force(result: Calibrated, n_draws: int, seed: int) -> None:
    """Draw, time and compare with the closed form over the tested concepts of the suite."""
    suite = result.contrasts[-1]
    n_concepts = len(suite.p)
    squares, beyond = np.zeros(n_concepts), np.zeros(n_concepts)
    observed = np.abs(suite.null.statistic()).astype(np.float32)[:, None]
    with measured(f"{n_draws} permutations, drawn"):
        for concepts, _, table in draw_statistics(suite.null, n_draws, seed):
            beyond[concepts] += (np.abs(table) >= observed[concepts]).sum(axis=1)
            squares[concepts] += np.einsum("ij,ij->i", table, table)
    tested = suite.support >= MIN_N_EFF
    ratio = squares[tested] / n_draws / suite.null.variance[tested]
    drawn = (beyond[tested] + 1) / (n_draws + 1)
    difference = np.abs(drawn - suite.p[tested])
    print(f"variance drawn / closed form  {ratio.mean():.4f}, standard deviation {ratio.std():.4f}")
    print(f"p drawn - p closed form       median {np.median(difference):.4f}, largest {difference.max():.4f}")
    print("p under the null at most      " + ", ".join(f"{level}: {np.mean(suite.p[tested] <= level):.4f}" for level in LEVELS))


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("items", 100_000), ("concepts", 65_536), ("per-item", 64), ("benchmarks", 12), ("draws", 1000), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with measured("made the suite"):
        saliency = made_saliency(rng, args.items, args.concepts, args.per_item)
        benchmarks = np.sort(rng.integers(0, args.benchmarks, args.items))
        lengths = rng.lognormal(4, 0.7, args.items).astype(np.int64)
        scores = (rng.random(args.items) < 0.3 + 0.5 * benchmarks / args.benchmarks).astype(np.float64)
    families, chance = np.arange(args.items), np.full(args.items, 0.25)
    with measured("reference and intervals"):
        reference(saliency, scores, benchmarks, families)
    with measured("calibrated, closed form"):
        strata = length_strata(lengths, benchmarks, 10)
        result = calibrate(saliency, scores, chance, benchmarks, strata, families, min_n_eff=MIN_N_EFF, alpha=0.05)
    brute_force(result, args.draws, args.seed)


if __name__ == "__main__":
    main()
