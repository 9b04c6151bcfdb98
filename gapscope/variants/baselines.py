"""What a verifier must beat: the commoner answer, and the words alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapscope.variants.contrasts import Labelled
from gapscope.variants.measures import COLUMNS, truths
from gapscope.variants.prompts import describe


def majority(train: Sequence[Labelled], rows: Sequence[Labelled]) -> np.ndarray:
    """The training share of each column for every row: (rows, COLUMNS)."""
    return np.tile(truths(train).mean(axis=0), (len(rows), 1))


def bag_of_words(train: Sequence[Labelled], rows: Sequence[Labelled]) -> np.ndarray:
    """Logistic regression on TF-IDF of words and pairs of words of original and variant: (rows, COLUMNS)."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    seen, asked = words.fit_transform([describe(row.pair) for row in train]), words.transform([describe(row.pair) for row in rows])
    truth = truths(train)
    columns = [LogisticRegression(C=1.0, max_iter=2000).fit(seen, truth[:, k]).predict_proba(asked)[:, 1] for k in range(len(COLUMNS))]
    return np.column_stack(columns)
