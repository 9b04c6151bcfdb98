"""From the parameters of labels to where labels come from: files read, models loaded, keys found."""

from __future__ import annotations

from pathlib import Path

from gapscope.errors import InputError
from gapscope.labels.endpoint import EndpointWriter
from gapscope.labels.published import read_published
from gapscope.labels.replies import Replies, Writer
from gapscope.labels.write import LabelSources
from gapscope.params_labels import Endpoint, LabelsParams, LocalModel


def label_sources(params: LabelsParams, observer: str | None, raw: Path | None, work: Path, n_concepts: int, threads: int) -> LabelSources:
    """Where the labels of an observer of ``n_concepts`` concepts come from besides keywords.

    Args:
        params: the labels section.
        observer: the observer's key, to find its published labels.
        raw: the directory that holds the sources, each under its key.
        work: where replies are remembered.
        n_concepts: width of the SAE.
        threads: of torch, for a model that runs here.

    Raises:
        InputError: a file or a model is absent or at fault, or the endpoint's key is not in the environment.
    """
    spec = None if observer is None else params.files.get(observer)
    published = None
    if spec is not None:
        published = (read_published(_source(raw, spec.source), spec, n_concepts), spec.source)
    if params.llm is None:
        return LabelSources(published)
    return LabelSources(published, Replies.of(_writer(params.llm, raw, threads), work), params.llm)


def _writer(llm: Endpoint | LocalModel, raw: Path | None, threads: int) -> Writer:
    if isinstance(llm, Endpoint):
        return EndpointWriter.of(llm)
    from gapscope.labels.local import LocalWriter
    from gapscope.threads import use_threads

    use_threads(threads)
    return LocalWriter.of(llm, _source(raw, llm.source))


def _source(raw: Path | None, key: str) -> Path:
    if raw is None:
        raise InputError(f"source {key!r} is needed and no directory of sources is given", field="--raw", fix="give --raw data/raw")
    if not (raw / key).exists():
        raise InputError(f"holds no source {key!r}", file=raw, fix="run the fetch stage")
    return raw / key
