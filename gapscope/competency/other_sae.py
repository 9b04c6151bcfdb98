"""Is a gap the model's, or one dictionary's? Concepts of one SAE matched to another's, and what both say of a subject.

Each concept is paired with the feature of the other set whose saliency over the items correlates with its own most
(:mod:`gapscope.competency.matching`), and the adjusted effects of pairs are compared. Since pairs are active on the same items
they must agree somewhat whatever the features are; how much of it that alone brings is seen from the random dictionary,
matched in the same way: the group ``random``.
"""

from __future__ import annotations

import numpy as np

from gapscope.competency.inference import GAP, STRENGTH, decide
from gapscope.competency.matching import Matches, match_by_saliency, rank_agreement
from gapscope.competency.outcome import CALIBRATED, RAW, Outcome, centre, share
from gapscope.competency.study import Features, Study, view

ALIKE = 0.7
"""Correlation of saliency from which on a pair is called the same concept."""


def other_sae(study: Study, others: dict[str, Features]) -> list[Outcome]:
    """Agreement of the concepts with each other feature set, by the name that it has here; undefined where there is none."""
    if not others:
        return [Outcome("concepts", "", CALIBRATED, "another", "rank_correlation")]
    outcomes = []
    for name, other in others.items():
        matches = match_by_saliency(study.suite.saliency, other.matrix)
        outcomes += _likeness(name, matches)
        for slug in sorted(study.subjects):
            outcomes += _agreement(study, slug, name, other, matches)
    return outcomes


def _likeness(name: str, matches: Matches) -> list[Outcome]:
    known = matches.likeness[matches.partner >= 0]
    if not len(known):
        return [Outcome("concepts", "", "", name, quantity) for quantity in ("likeness", "alike")]
    alike = share(int((known >= ALIKE).sum()), len(known))
    return [
        Outcome("concepts", "", "", name, "likeness", *centre(known, np.median), len(known)),
        Outcome("concepts", "", "", name, "alike", *alike, n=len(known)),
    ]


def _agreement(study: Study, slug: str, name: str, other: Features, matches: Matches) -> list[Outcome]:
    """Rank correlation of effects over matched pairs, and how many flagged concepts the partner says the same of."""
    first, second = (view(study, features, study.subjects[slug]) for features in (study.concepts(), other))
    effects = [np.where(one.tested, one.one.adjusted, np.nan) for one in (first, second)]
    outcomes = []
    for ranking, pair in ((CALIBRATED, effects), (RAW, [one.raw(study.n_benchmarks) for one in (first, second)])):
        found = rank_agreement(pair[0], pair[1], matches)
        value = float("nan") if found.rank_correlation is None else found.rank_correlation
        n = 0 if found.rank_correlation is None else found.n
        outcomes.append(Outcome("concepts", slug, ranking, name, "rank_correlation", value, n=n))
    status = decide(first.one, first.tested, study.performance.alpha, same=1.0)[3]
    flagged = np.flatnonzero(((status == GAP) | (status == STRENGTH)) & (matches.partner >= 0))
    partners = matches.partner[flagged]
    agrees = np.sign(effects[0][flagged]) == np.sign(effects[1][partners])
    sure = agrees & (second.one.p[partners] < study.performance.alpha)
    for quantity, mask in (("same_side", agrees), ("confirmed", sure)):
        outcomes.append(Outcome("concepts", slug, CALIBRATED, name, quantity, *share(int(mask.sum()), len(flagged)), n=len(flagged)))
    return outcomes
