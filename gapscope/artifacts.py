"""The schema of every artifact: each column documented, typed and versioned in one place.

JSON artifacts and metrics are plain nested dicts, described where they are made; tables are Parquet and described here.
The .npz matrices (items x concepts, rows in the order of items.jsonl) are scipy CSR, see :func:`gapscope.files.write_csr`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from gapscope.files import dump_json
from gapscope.table import BOOL, FLOAT, FLOATS, INT, STRING, STRINGS, Column, Table

SUITE = "__suite__"
"""The name in a ``benchmark`` column of the row that sums up the whole suite."""

DOCUMENT = "corpus:"
"""What goes before the id of a document of the corpus in an ``item_id`` column."""

ROWS = Table(
    "rows",
    1,
    (),
    (
        Column("item_id", STRING, "id of the item; row k here is row k of the saliency matrices"),
        Column("benchmark", STRING, "slug of the item's benchmark"),
        Column("n_tokens", INT, "tokens that entered the saliency"),
        Column("n_masked", INT, "tokens read but left out: begin-of-text, special and template tokens"),
        Column("n_truncated", INT, "tokens cut off because the item is longer than the SAE's context"),
    ),
)

FIRING = Table(
    "firing",
    2,
    ("concept",),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("n_texts", INT, "texts read (the same for every concept)"),
        Column("n_tokens", INT, "tokens read (the same for every concept)"),
        Column("n_firing", INT, "tokens on which the concept fires"),
        Column("n_firing_squared", INT, "sum over texts of the squared number of tokens on which it fires: how much it comes in runs"),
    ),
)
"""Form of reference.parquet and template.parquet."""

CONTEXTS = Table(
    "contexts",
    1,
    ("concept", "group", "rank"),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("item_id", STRING, "item that the window is from; in the group reference DOCUMENT and the document's id"),
        Column("start", INT, "first character of the window in the text of the item or document"),
        Column("end", INT, "one past the last character of the window"),
        Column("tokens", STRINGS, "the window cut into pieces of whole characters; joined they give text[start:end]"),
        Column("activations", FLOATS, "activation of the concept on each piece (the greatest of its tokens)"),
        Column("rank", INT, "position inside the group, from 0: strongest first, lowest first among quantiles"),
        Column(
            "group",
            STRING,
            "top (strongest in the items), quantile (spread over the range there) or reference (strongest in the reference corpus)",
        ),
    ),
)


def rows_digest(item_ids: Sequence[str], benchmarks: Sequence[str]) -> str:
    """A sha256 of the items behind the rows of the matrices, in their order: meta.json's ``rows_sha256``."""
    return hashlib.sha256(dump_json([list(item_ids), list(benchmarks)]).encode()).hexdigest()


SCORES = Table(
    "scores",
    1,
    ("item_id",),
    (
        Column("item_id", STRING, "id of the item"),
        Column("score", FLOAT, "how right the subject was, 0 to 1; null where unscored", nullable=True),
        Column("chance", FLOAT, "expected score of a blind guess"),
        Column("prediction", STRING, "index of the chosen choice, or the answer as text; null where unscored", nullable=True),
        Column("logprobs", pa.list_(FLOAT), "log-probability of each choice, summed over its tokens, natural log", nullable=True),
        Column("scored", BOOL, "false where no score could be computed"),
    ),
)

COVERAGE = Table(
    "coverage",
    1,
    ("benchmark", "concept"),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("benchmark", STRING, "slug, or __suite__ for the mean over benchmarks"),
        Column("chi_bench", FLOAT, "mean saliency of the concept over the mean of all concepts and items", nullable=True),
        Column("n_items", INT, "items on which the concept fires"),
        Column("n_tokens", INT, "tokens on which the concept fires"),
        Column("firing_rate", FLOAT, "share of unmasked tokens on which the concept fires", nullable=True),
        Column("chi_bench_unmasked", FLOAT, "chi_bench with special tokens left in", nullable=True),
        Column("reference_rate", FLOAT, "firing rate on the reference corpus", nullable=True),
        Column("log_ratio", FLOAT, "log2 of firing rate here over the reference, at equal tokens", nullable=True),
        Column("log_ratio_low", FLOAT, "lower end of its 95% interval", nullable=True),
        Column("log_ratio_high", FLOAT, "upper end of its 95% interval", nullable=True),
        Column("published_status", STRING, "missing, under, typical or over by the paper's rule on chi_bench", nullable=True),
        Column("status", STRING, "dead, unexercised, under, typical or over against the reference corpus", nullable=True),
        Column(
            "structural",
            BOOL,
            "fires as much on the template with empty content; null where the template is empty, as with text: text",
            nullable=True,
        ),
    ),
)

OVERLAP = Table(
    "overlap",
    1,
    ("benchmark", "other"),
    (
        Column("benchmark", STRING, "slug"),
        Column("other", STRING, "slug of another benchmark; every ordered pair is a row"),
        Column("n_concepts", INT, "concepts that fire in the benchmark"),
        Column("n_other", INT, "concepts that fire in the other"),
        Column("n_shared", INT, "concepts that fire in both"),
        Column("jaccard", FLOAT, "n_shared over the concepts that fire in either; null where none does", nullable=True),
        Column("contained", FLOAT, "n_shared over n_concepts: how much of the benchmark the other covers", nullable=True),
    ),
)

PERFORMANCE = Table(
    "performance",
    1,
    ("benchmark", "concept"),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("benchmark", STRING, "slug, or __suite__ for the mean over the benchmarks where chi_model is defined"),
        Column("chi_model", FLOAT, "saliency-weighted mean score", nullable=True),
        Column("n", INT, "scored items on which the concept fires; of the suite in all benchmarks"),
        Column("n_eff", FLOAT, "how many equally weighted items they are worth: (sum a)^2 / sum a^2, of the suite the benchmarks' summed"),
        Column("ci_low", FLOAT, "lower end of the 95% interval of chi_model", nullable=True),
        Column("ci_high", FLOAT, "upper end of the 95% interval of chi_model", nullable=True),
        Column("adjusted", FLOAT, "chance-corrected score minus the mean of its stratum, saliency-weighted", nullable=True),
        Column("adjusted_low", FLOAT, "lower end of the 95% interval of adjusted", nullable=True),
        Column("adjusted_high", FLOAT, "upper end of the 95% interval of adjusted", nullable=True),
        Column("shrunk", FLOAT, "empirical-Bayes estimate of adjusted, for ranking", nullable=True),
        Column("p", FLOAT, "two-sided permutation p of adjusted, scores permuted within strata over families", nullable=True),
        Column("q", FLOAT, "Benjamini-Hochberg q over the supported concepts", nullable=True),
        Column("finding", STRING, "id of the group of concepts that are one finding", nullable=True),
        Column("status", STRING, "gap, strength, typical, unsupported or undefined", nullable=True),
    ),
)

CLUSTERS = Table(
    "clusters",
    1,
    ("subject", "cluster", "concept"),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("subject", STRING, "subject whose gap or strength it is; null for a coverage gap", nullable=True),
        Column("cluster", STRING, "id of the cluster"),
        Column("label", STRING, "what the concept seems to be about"),
        Column(
            "label_source", STRING, "keywords, reference (keywords of the reference corpus), llm, none, or the published labels' source"
        ),
        Column(
            "label_score",
            FLOAT,
            "detection score on held-out contexts: area under the ROC curve of words, or an llm's balanced accuracy",
            nullable=True,
        ),
        Column("interpretation", STRING, "name or paragraph of the cluster", nullable=True),
    ),
)


def _measure(name: str, meaning: str) -> tuple[Column, Column, Column]:
    return (
        Column(name, FLOAT, meaning, nullable=True),
        Column(f"{name}_low", FLOAT, f"lower end of the interval of {name}", nullable=True),
        Column(f"{name}_high", FLOAT, f"upper end of the interval of {name}", nullable=True),
    )


ROBUSTNESS = Table(
    "robustness",
    1,
    ("subject", "subset"),
    (
        Column("subject", STRING, "slug of the subject"),
        Column(
            "subset", STRING, "all, a variant type, or critical_testing by what its none of the above is (_nota_gold, _nota_distractor)"
        ),
        Column("n_families", INT, "families with a scored original and a scored variant of the subset"),
        Column("n_variants", INT, "their scored variants"),
        Column("n_unscored", INT, "variants left out because they, or their original, could not be scored"),
        Column("chance_original", FLOAT, "accuracy of a blind guess on the originals", nullable=True),
        Column("chance_variant", FLOAT, "accuracy of a blind guess on the variants", nullable=True),
        *_measure("oa", "accuracy on the originals"),
        *_measure("ara", "accuracy on the variants"),
        *_measure("rla", "oa - ara"),
        *_measure("rla_relative", "(oa - ara) / oa"),
        *_measure("cra_pair", "share of (original, variant) pairs with both right"),
        *_measure("cra_all", "share of families with the original and every variant right"),
    ),
)

ANSWERS = Table(
    "answers",
    1,
    ("subject", "item_id"),
    (
        Column("subject", STRING, "slug of the subject"),
        Column("item_id", STRING, "id of the original or variant, as presented.jsonl holds it"),
        Column("family", STRING, "the family that joins an original and its variants"),
        Column("type", STRING, "original, or the variant's type"),
        Column("answer", INT, "index of the gold choice as presented"),
        Column("prediction", STRING, "index of the chosen choice as presented; null where unscored", nullable=True),
        Column("score", FLOAT, "1 where right, else 0; null where unscored", nullable=True),
    ),
)

COMPARISONS = Table(
    "comparisons",
    1,
    ("asked", "subject", "other"),
    (
        Column("asked", STRING, "originals (McNemar's test) or variants (sign-flip test over families)"),
        Column("subject", STRING, "slug"),
        Column("other", STRING, "slug of the subject it is compared with"),
        Column("n_families", INT, "families that both were scored on"),
        Column("difference", FLOAT, "accuracy of subject less that of other", nullable=True),
        Column("p", FLOAT, "two-sided exact p; null without a common family", nullable=True),
        Column("p_holm", FLOAT, "p after Holm over all pairs of subjects, originals and variants each by themselves", nullable=True),
    ),
)

EXPORT = Table(
    "export",
    1,
    ("id",),
    (
        Column("id", STRING, "id of the original or variant"),
        Column("family", STRING, "the family that joins an original and its variants"),
        Column("benchmark", STRING, "slug of the original's benchmark"),
        Column("type", STRING, "original, or the variant's type"),
        Column("bloom", STRING, "level of Bloom's taxonomy that gapscope gives the type; null of an original", nullable=True),
        Column("text", STRING, "the question"),
        Column("choices", STRINGS, "the choices in the order in which they were asked"),
        Column("answer", INT, "index of the gold choice, from 0"),
        Column("p_valid", FLOAT, "the verifier's probability that the variant is valid; null of an original", nullable=True),
    ),
)

CHANGES = Table(
    "changes",
    1,
    ("subject", "other", "benchmark", "concept"),
    (
        Column("subject", STRING, "slug of the first subject"),
        Column("other", STRING, "slug of the second, from whose scores the first's are taken"),
        Column("benchmark", STRING, "slug, or __suite__ for the mean over the benchmarks where chi_model is defined"),
        Column("concept", INT, "index of the SAE latent"),
        Column("first", FLOAT, "chi_model of the first subject on the items that both have a score of", nullable=True),
        Column("second", FLOAT, "chi_model of the second on them", nullable=True),
        Column("difference", FLOAT, "second minus first", nullable=True),
        Column("low", FLOAT, "lower end of the interval of difference", nullable=True),
        Column("high", FLOAT, "upper end of the interval of difference", nullable=True),
        Column("p", FLOAT, "two-sided p of difference, the subjects changing places family by family", nullable=True),
        Column("q", FLOAT, "Benjamini-Hochberg q of p over the supported concepts", nullable=True),
        Column("n", INT, "items that both have a score of and on which the concept fires"),
        Column("n_eff", FLOAT, "how many equally weighted items they are worth: (sum a)^2 / sum a^2, of the suite the benchmarks' summed"),
        Column("n_gained", INT, "of these, items that the second scores higher"),
        Column("n_lost", INT, "of these, items that the second scores lower"),
        Column("relative", FLOAT, "saliency-weighted difference minus its mean on items of the same stratum", nullable=True),
        Column("relative_low", FLOAT, "lower end of the interval of relative", nullable=True),
        Column("relative_high", FLOAT, "upper end of the interval of relative", nullable=True),
        Column("relative_p", FLOAT, "two-sided p of relative, differences permuted within strata over families", nullable=True),
        Column("relative_q", FLOAT, "Benjamini-Hochberg q of relative_p over the supported concepts", nullable=True),
        Column("finding", STRING, "id of the group of concepts that are one finding", nullable=True),
        Column("status", STRING, "ahead, behind or typical of comparable items, by relative_q; unsupported or undefined"),
    ),
)

REACH = Table(
    "reach",
    1,
    ("kind", "subject", "concept"),
    (
        Column("concept", INT, "index of the SAE latent"),
        Column("kind", STRING, "under or unexercised (the suite's coverage gaps), or model (a subject's gap)"),
        Column("subject", STRING, "slug of the subject whose gap it is; null for a coverage gap", nullable=True),
        Column("suite_items", INT, "items of the suite on which the concept fires"),
        Column("suite_rate", FLOAT, "share of the suite's tokens on which it fires", nullable=True),
        Column("original_items", INT, "originals of accepted variants on which it fires"),
        Column("original_rate", FLOAT, "share of their tokens on which it fires", nullable=True),
        Column("variant_items", INT, "accepted variants on which it fires"),
        Column("variant_rate", FLOAT, "share of their tokens on which it fires", nullable=True),
        Column("reference_rate", FLOAT, "share of the reference corpus' tokens on which it fires", nullable=True),
        Column("log_ratio", FLOAT, "log2 of the variants' firing rate over the reference's, at equal tokens", nullable=True),
        Column("log_ratio_low", FLOAT, "lower end of its 95% interval", nullable=True),
        Column("log_ratio_high", FLOAT, "upper end of its 95% interval", nullable=True),
        Column("status", STRING, "coverage status in the variants; null where they hold too little text to tell", nullable=True),
    ),
)
"""Every gap concept of the loop's observer, and where it fires."""

VALIDITY = Table(
    "validity",
    1,
    ("features", "subject", "ranking", "group", "quantity"),
    (
        Column("features", STRING, "feature set: concepts, or a control that takes their place"),
        Column("subject", STRING, "slug of the subject; empty where the number is of no one subject"),
        Column("ranking", STRING, "calibrated or raw; empty where it is of neither"),
        Column("group", STRING, "of which features, items, benchmark or draws"),
        Column("quantity", STRING, "what was measured; the module of the check explains it"),
        Column("value", FLOAT, "the number; null where undefined", nullable=True),
        Column("low", FLOAT, "lower end of its 95% interval, where it has one", nullable=True),
        Column("high", FLOAT, "upper end of its 95% interval, where it has one", nullable=True),
        Column("n", INT, "how many features, draws, items or pairs it rests on; 0 where it is undefined"),
    ),
)
"""Form of every table of the validity stage, one a check."""
