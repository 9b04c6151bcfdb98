"""One run beside an earlier one: what is compared, and when it is refused."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from made_explorer import make_explorer_run, read_block
from made_run import Shape

from gapscope.artifacts import SCORES
from gapscope.errors import InputError
from gapscope.files import sha256_file, write_csr
from gapscope.params import PerformanceParams
from gapscope.report.explorer import against

SHAPE = Shape(n_concepts=10, n_items=60, n_benchmarks=2)
PARAMS = PerformanceParams(min_n_eff=5.0)


class Directory:
    """Stands for a revision: the same artifacts in another directory."""

    def __init__(self, here: Path, there: Path) -> None:
        self.here, self.there = here, there

    def md5(self, path: Path) -> str | None:
        file = self.there / path.relative_to(self.here)
        return sha256_file(file) if file.exists() else None

    def fetch(self, path: Path, to: Path) -> Path:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes((self.there / path.relative_to(self.here)).read_bytes())
        return to


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A run now, and the same run before, whose revision is called old."""
    made = [make_explorer_run(tmp_path / name, SHAPE) for name in ("now", "before")]
    for paths in made:
        fires = np.random.default_rng(1).random((SHAPE.n_items, SHAPE.n_concepts)) < 0.7
        write_csr(paths.artifacts.activations / "obs/saliency.npz", sp.csr_matrix(fires.astype(np.float32)))
    opened = {"old": Directory(tmp_path / "now", tmp_path / "before"), None: Directory(tmp_path / "now", tmp_path / "now")}
    monkeypatch.setattr(against.Revision, "open", staticmethod(lambda _near, name: opened[name]))
    return made


def test_a_subject_that_lost_everything_is_behind_by_what_it_had(runs) -> None:
    now, _before = runs
    file = now.artifacts.scores / "subj/scores.parquet"
    table = SCORES.read(file).to_pydict()
    had = np.array([np.nan if score is None else score for score in table["score"]])
    table["score"] = [None if score is None else 0.0 for score in table["score"]]
    SCORES.write(file, table)
    ((pair, block),) = against.pairs_against(now, "obs", ["subj"], "old", PARAMS)
    assert pair == {"first": "subj", "second": "subj", "first_run": "old", "second_run": "now"}
    _header, columns = read_block(f'<i id="block-x">{block.encode()}</i>', "x")
    assert columns["second"] == pytest.approx(np.zeros(10))
    assert columns["difference"] == pytest.approx(-columns["first"], abs=1e-4)
    assert 0 < np.nanmean(had) < 1
    assert (columns["n_gained"] == 0).all()


def test_another_sae_is_refused(runs) -> None:
    now, before = runs
    (before.sae / "obs/sae_weights.safetensors").write_bytes(b"another")
    with pytest.raises(InputError, match="another SAE"):
        against.pairs_against(now, "obs", ["subj"], "old", PARAMS)


def test_other_questions_are_refused(runs) -> None:
    now, before = runs
    items = before.artifacts.items / "items.jsonl"
    items.write_text(items.read_text().replace("energy", "heat"))
    with pytest.raises(InputError, match="another question"):
        against.pairs_against(now, "obs", ["subj"], "old", PARAMS)


def test_a_subject_that_was_not_there_is_said(runs) -> None:
    now, before = runs
    (before.artifacts.scores / "subj/scores.parquet").unlink()
    with pytest.raises(InputError, match="scores of none of subj"):
        against.pairs_against(now, "obs", ["subj"], "old", PARAMS)
