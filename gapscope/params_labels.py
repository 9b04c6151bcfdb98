"""The parameters of labels: published explanation files, and the language model that writes labels where one is given."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from gapscope.params_types import Dtype, Inside, Positive, Slug, Strict

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@/?#]+(/[^\s@?#]*)?$")]
"""An address without credentials or query: a secret belongs into the environment."""

Price = Annotated[float, Field(ge=0)]


class LabelFile(Strict):
    """Published explanations of an observer's SAE.

    Attributes:
        source: slug under ``sources``.
        files: files inside the source, or patterns of them; may be gzipped.
        format: neuronpedia (JSON lines or one JSON list with index and description), or goodfire (a JSON object of labels by
            index, a JSON list, JSON lines, or a CSV with a column of indices and one of labels).
        layer: which SAE's, where the files hold several (Neuronpedia's source id, such as 20-gemmascope-res-16k).
        explainer: whose explanations, where several models wrote them (Neuronpedia's explanationModelName).
    """

    source: Slug
    files: Annotated[list[Inside], Field(min_length=1)]
    format: Literal["neuronpedia", "goodfire"]
    layer: str | None = None
    explainer: str | None = None


class Asking(Strict):
    """How a language model is asked, wherever it runs.

    Attributes:
        shown: contexts of a concept that an explanation is written from, and as many of others.
        held_out: contexts that the explanation has to pick out, at most, and as many of others.
        max_tokens: longest reply.
    """

    shown: Positive = 5
    held_out: Annotated[int, Field(ge=2)] = 5
    max_tokens: Positive = 300


class Endpoint(Asking):
    """An OpenAI-compatible chat endpoint.

    Attributes:
        url: base address, to which /chat/completions is added.
        model: name of the model there.
        key_variable: name of the environment variable that holds the key; null for a server that wants none.
        timeout: seconds to wait for a reply.
        retries: further attempts after a reply of 429 or 5xx, a dropped connection, or one that is no JSON.
        parallel: requests under way at once.
        price_input, price_output: price of a million tokens, in whatever currency; null leaves the cost out.
    """

    kind: Literal["endpoint"]
    url: Url
    model: str
    key_variable: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    timeout: Annotated[float, Field(gt=0)] = 60.0
    retries: Annotated[int, Field(ge=0)] = 6
    parallel: Positive = 4
    price_input: Price | None = None
    price_output: Price | None = None

    @model_validator(mode="after")
    def _both_prices(self) -> Endpoint:
        if (self.price_input is None) != (self.price_output is None):
            raise ValueError("give price_input and price_output, or neither")
        return self


class LocalModel(Asking):
    """A model of a source, run here. A small one writes poor labels; their scores say so."""

    kind: Literal["local"]
    source: Slug
    dtype: Dtype = "float32"


class LabelsParams(Strict):
    """Where labels come from, best first: a published file, a language model, keywords (which need nothing).

    Attributes:
        files: published explanations, by observer.
        llm: the language model that explains what has no published explanation, scores both and names clusters; or null.
    """

    files: dict[Slug, LabelFile] = Field(default_factory=dict)
    llm: Annotated[Endpoint | LocalModel, Field(discriminator="kind")] | None = None
