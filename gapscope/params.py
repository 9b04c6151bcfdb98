"""params.yaml as typed models: unknown keys, wrong types and rules across keys fail here, before anything heavy loads.

Only pydantic and PyYAML are imported, so that a wrong parameter is reported well within two seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gapscope.errors import InputError
from gapscope.files import read_text
from gapscope.params_compare import CompareParams
from gapscope.params_data import Benchmark, Corpus, HubSource, ItemsParams, LogResults, PackageSource, PathSource, Source, pins_of
from gapscope.params_faults import first_fault
from gapscope.params_labels import LabelsParams, LocalModel
from gapscope.params_observers import Observer, PathSae
from gapscope.params_robustness import EvaluateParams, FilterParams, GenerateParams, ReachParams
from gapscope.params_types import Count, Dtype, Inside, Positive, Share, Slug, Strict
from gapscope.params_validity import ValidityParams
from gapscope.params_variants import GrpoParams, SeedsParams, SftParams, VariantsParams

# Kept importable from here: whoever reads parameters need not know which file declares which.
__all__ = ["Benchmark", "Corpus", "HubSource", "PackageSource", "Params", "PathSource", "Source", "StageParams", "load_params"]


class Results(Strict):
    """How to read a plain table of results as a subject; every column and its form is named, nothing is guessed.

    `prediction_form` says what the answers are: a choice's letter, its index from 0, or its text word for word; for
    free-form items also `exact` (text, but for case, white space and marks around it) and `number` (the number that a
    solution ends with).
    `missing` decides on empty cells. `unscored` leaves such items out, as a failed measurement: the accuracy is that
    of the answered items. `wrong` counts them as wrong, as leaderboards do with an answer that could not be parsed.
    """

    format: Literal["plain"] = "plain"
    file: Inside
    id_column: str = "id"
    id_prefix: str = ""
    score_column: str | None = None
    prediction_column: str | None = None
    prediction_form: Literal["letter", "index", "text", "exact", "number"] | None = None
    missing: Literal["unscored", "wrong"] = "unscored"

    @model_validator(mode="after")
    def _one_of_two(self) -> Results:
        if (self.score_column is None) == (self.prediction_column is None):
            raise ValueError("give exactly one of score_column and prediction_column")
        if (self.prediction_column is None) != (self.prediction_form is None):
            raise ValueError("give prediction_form (letter, index, text, exact or number) with prediction_column, and only with it")
        return self


def _results_kind(value: Any) -> str:
    given = value.get("format", "plain") if isinstance(value, dict) else getattr(value, "format", "plain")
    return "plain" if given == "plain" else "log"


class Model(Strict):
    """A subject: a local model that is scored here in `dtype`, or the `results` of one that was scored elsewhere."""

    source: Slug
    name: str
    dtype: Dtype = "float32"
    results: Annotated[Annotated[Results, Tag("plain")] | Annotated[LogResults, Tag("log")], Discriminator(_results_kind)] | None = None


class TrainSaeParams(Strict):
    """The train-sae stage: a BatchTopK SAE, saved as a JumpReLU one."""

    d_sae: Positive = 4096
    k: Positive = 32
    context_size: Positive = 512
    prepend_bos: bool = True
    train_tokens: Positive = 250_000
    heldout_tokens: Positive = 205_000
    steps: Positive = 600
    batch_tokens: Positive = 2048
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3

    @model_validator(mode="after")
    def _k_fits(self) -> TrainSaeParams:
        if self.k >= self.d_sae:
            raise ValueError(f"k ({self.k}) must be below d_sae ({self.d_sae})")
        return self


class ExtractActivationsParams(Strict):
    """The extract-activations stage.

    Attributes:
        text: what of an item is read: its text, or its text and the choices after it.
        max_tokens: longest sequence; the SAE's training context bounds it too.
        mask_sinks: leave out tokens whose residual is more than ten times as long as the median, whatever their text.
        max_fvu: the canary's limit: the SAE's unexplained share of variance on fixed text.
        random_control: also apply random directions of the same width and sparsity, to compare the SAE with.
    """

    text: Literal["text", "text_and_choices"] = "text"
    max_tokens: Positive = 512
    mask_sinks: bool = True
    batch_tokens: Positive = 2048
    reference_tokens: Positive = 100_000
    max_fvu: Annotated[float, Field(gt=0)] = 0.5
    random_control: bool = True
    top_contexts: Positive = 10
    quantile_contexts: Count = 5
    reference_contexts: Count = 5
    context_window: Positive = 24


class ScoreParams(Strict):
    """The score stage.

    Where `prepend_bos` is null, a begin-of-text token is put in front if the tokenizer does so by itself. `batch_tokens`
    bounds the padded tokens of a forward pass and `batch_size` the items in it: 512 tokens keep two cores busy with
    little padding, an accelerator wants many more.
    """

    normaliser: Literal["none", "char", "byte", "token"] = "byte"
    prompt: Annotated[str, StringConstraints(pattern=r"\{text\}")] = "Question: {text}\nAnswer:"
    separator: str = " "
    prepend_bos: bool | None = None
    max_tokens: Positive = 2048
    batch_tokens: Positive = 512
    batch_size: Positive | None = None


class CoverageParams(Strict):
    """The coverage stage."""

    under_quantile: Share = 0.1
    over_quantile: Share = 0.9
    min_log_ratio: Annotated[float, Field(ge=0)] = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> CoverageParams:
        if self.under_quantile >= self.over_quantile:
            raise ValueError("under_quantile must be below over_quantile")
        return self


class StrataParams(Strict):
    """Items that are compared with each other: of one benchmark, of about one length, and alike in a meta key."""

    length_bins: Positive = 10
    meta: str | None = None


class PerformanceParams(Strict):
    """The performance stage."""

    min_n_eff: Annotated[float, Field(gt=0)] = 20.0
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    strata: StrataParams = StrataParams()


class ClusterParams(Strict):
    """The cluster stage."""

    extremes: Positive = 60
    max_concepts: Positive = 2000
    keywords: Positive = 4
    max_cluster_size: Positive = 12
    max_distance: Share = 0.8
    label_weight: Share = 0.5


class ReportParams(Strict):
    """The report stage."""

    bins: Positive = 40
    coverage_bins_per_decade: Positive = 5
    extremes: Positive = 15


class StageParams(Strict):
    """The parameters of the stages themselves, each with a default: what a command uses outside a repository."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 20
    threads: Positive = 2
    items: ItemsParams = ItemsParams()
    train_sae: TrainSaeParams = TrainSaeParams()
    extract_activations: ExtractActivationsParams = ExtractActivationsParams()
    score: ScoreParams = ScoreParams()
    coverage: CoverageParams = CoverageParams()
    performance: PerformanceParams = PerformanceParams()
    compare: CompareParams = CompareParams()
    labels: LabelsParams = LabelsParams()
    cluster: ClusterParams = ClusterParams()
    validity: ValidityParams = ValidityParams()
    variants: VariantsParams = VariantsParams()
    seeds: SeedsParams = SeedsParams()
    sft: SftParams = SftParams()
    grpo: GrpoParams = GrpoParams()
    generate: GenerateParams = GenerateParams()
    filter: FilterParams = FilterParams()
    evaluate: EvaluateParams = EvaluateParams()
    reach: ReachParams = ReachParams()
    report: ReportParams = ReportParams()


class Params(StageParams):
    """The whole of params.yaml: what is studied, and how."""

    sources: dict[Slug, Source]
    benchmarks: Annotated[dict[Slug, Benchmark], Field(min_length=1)]
    corpus: Corpus | None = None
    observers: Annotated[dict[Slug, Observer], Field(min_length=1)]
    models: Annotated[dict[Slug, Model], Field(min_length=1)]
    rewritten: Annotated[list[Slug], Field(min_length=1)] | None = None

    @property
    def loop_observer(self) -> str:
        """Slug of the observer whose gaps choose the items to rewrite, and that reads the variants: named, or the first by name."""
        return self.generate.observer or min(self.observers)

    @model_validator(mode="after")
    def _sources_exist(self) -> Params:
        used = {f"benchmarks.{slug}.source": benchmark.source for slug, benchmark in self.benchmarks.items()}
        for slug, benchmark in self.benchmarks.items():
            used |= {f"benchmarks.{slug}.more_sources.{place}": source for place, source in enumerate(benchmark.more_sources)}
        used |= {f"observers.{slug}.source": observer.source for slug, observer in self.observers.items()}
        used |= {f"models.{slug}.source": model.source for slug, model in self.models.items()}
        used |= {f"observers.{slug}.sae.source": o.sae.source for slug, o in self.observers.items() if isinstance(o.sae, PathSae)}
        if self.evaluate.reference is not None:
            used["evaluate.reference.source"] = self.evaluate.reference.source
        if self.corpus is not None:
            used["corpus.source"] = self.corpus.source
        if self.validity.encoder is not None:
            used["validity.encoder"] = self.validity.encoder
        # Parameters that never speak of the second half need no model for it; a stage of it that is run all the same says so.
        if self.variants.enabled and self.model_fields_set & {"variants", "sft"}:
            used |= {"sft.source": self.sft.source, "sft.embedder": self.sft.embedder}
        used |= {f"labels.files.{slug}.source": spec.source for slug, spec in self.labels.files.items()}
        if isinstance(self.labels.llm, LocalModel):
            used["labels.llm.source"] = self.labels.llm.source
        for slug in self.labels.files:
            if slug not in self.observers:
                raise ValueError(f"labels.files names {slug!r}, which is not under observers: (known: {', '.join(sorted(self.observers))})")
        if self.generate.observer is not None and self.generate.observer not in self.observers:
            known = ", ".join(sorted(self.observers))
            raise ValueError(f"generate.observer is {self.generate.observer!r}, which is not under observers: (known: {known})")
        for first, second in self.compare.pairs:
            for slug in (first, second):
                if slug not in self.models:
                    raise ValueError(f"compare.pairs names {slug!r}, which is not under models: (known: {', '.join(sorted(self.models))})")
        for key, source in used.items():
            if source not in self.sources:
                raise ValueError(f"{key} is {source!r}, which is not under sources: (known: {', '.join(sorted(self.sources))})")
        for slug in (self.rewritten or []) if self.variants.enabled else []:
            if slug not in self.benchmarks:
                raise ValueError(f"rewritten holds {slug!r}, which is not under benchmarks: (known: {', '.join(sorted(self.benchmarks))})")
        for slug, observer in self.observers.items():
            if isinstance(observer.sae, PathSae) and observer.sae.pin not in (pins := pins_of(self.sources[observer.sae.source])):
                raise ValueError(f"observers.{slug}.sae.pin must be what pins its source: {' or '.join(pins)}")
        trained = [slug for slug, observer in self.observers.items() if observer.sae.kind == "train"]
        if trained and self.corpus is None:
            raise ValueError(f"observers.{trained[0]}.sae is to be trained, but there is no corpus:")
        return self


def load_params(path: Path) -> Params:
    """Read and check params.yaml; what is raised, see :func:`parse_params`."""
    return parse_params(read_text(path), path)


def parse_params(text: str, path: Path) -> Params:
    """Check the text of a params.yaml; ``path`` is named in errors.

    Raises:
        InputError: not YAML, an unknown key, a wrong type or a broken rule; names the key, its value and the fix.
    """
    try:
        # YAML 1.2, as DVC reads and writes it: there yes and no are words, and 1e-4 is a number.
        raw = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InputError(f"not valid YAML: {getattr(error, 'problem', error)}", file=path, line=line) from error
    if not isinstance(raw, dict):
        raise InputError("must be a mapping of parameters", file=path)
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise first_fault(error, path, raw) from error
