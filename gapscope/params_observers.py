"""The parameters of observers: the model that reads the questions, and where its SAE comes from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gapscope.params_types import Count, Dtype, Inside, Slug, Strict


class TrainedSae(Strict):
    """The SAE is trained by the train-sae stage."""

    kind: Literal["train"]


class PublishedSae(Strict):
    """What is common to SAEs that others made.

    Attributes:
        prepend_bos: whether a begin-of-text token goes before every text. Null is what the SAE's own configuration says;
            needed where that says nothing, or what is not true of the model.
    """

    prepend_bos: bool | None = None


class RegistrySae(PublishedSae):
    """A published SAE by its name in the SAELens registry.

    Attributes:
        release: name of a release in the registry, or a hub repository in SAELens's own format.
        id: name of the SAE inside it.
        pickled: some releases hold their weights as a pickled torch file only. True lets torch's reader of plain tensors
            open it, which runs no code that a file may hold.
    """

    kind: Literal["registry"]
    release: str
    id: str
    pickled: bool = False


class PathSae(PublishedSae):
    """An SAE in SAELens's own format inside a source.

    Attributes:
        source: slug under ``sources``.
        pin: the source's sha256 (of a package: one of its packages'; of a hub repository without one: the revision). It stands
            here too because what the train-sae stage depends on is this observer's parameters: other files, another pin.
        directory: where cfg.json and sae_weights.safetensors lie inside the source.
        norm_scaling_factor: for an SAE that expects activations of mean norm sqrt(width): that over the mean norm of the
            activations that it was trained on. Its own files do not hold it.
    """

    kind: Literal["path"]
    source: Slug
    pin: str
    directory: Inside = "."
    norm_scaling_factor: Annotated[float, Field(gt=0)] | None = None


Sae = Annotated[TrainedSae | RegistrySae | PathSae, Field(discriminator="kind")]


class Observer(Strict):
    """A model that reads the questions, and the SAE that names what it reads."""

    source: Slug
    name: str
    layer: Count
    dtype: Dtype = "float32"
    sae: Sae
