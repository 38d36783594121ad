"""What a scenario's model holds and computes: numbers of parameters and statistics, and operations of a step."""

from pathlib import Path
from typing import Any

from fewjoules.datasets.shapes import CLASSES, SHAPES, TEXTS, USUAL_CONTEXT
from fewjoules.engine.models.architectures import ARCHITECTURES, Images, Shape, Text
from fewjoules.engine.models.architectures.base import MAX_SIZES
from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra
from fewjoules.own_code import is_own
from fewjoules.scenario.own_data import own_data
from fewjoules.scenario.schema.tables import ModelTable
from fewjoules.scenario.schema.training import TrainingTable


def sizes(model: ModelTable, training: TrainingTable | None, folder: Path) -> tuple[int, int]:
    """Return the numbers of parameters and statistics of the model."""
    parameters, architecture = model.parameters, model.architecture
    if (parameters is None) == (architecture is None):
        given = "both" if parameters is not None else "neither"
        raise InvalidInputError(f"model needs exactly one of parameters and architecture, got {given}")
    if parameters is not None:
        _require_unused(model, ("context", *MAX_SIZES), "the model is given by its parameters")
        return parameters, 0
    assert architecture is not None
    shape = _shape(model, architecture, training, folder)
    if not is_own(architecture):
        assert shape is not None
        known = ARCHITECTURES[architecture]
        return known.parameters(shape, **_sizes(model, architecture)), known.statistics
    _require_unused(model, tuple(MAX_SIZES), "a network of your own has its own sizes")
    require_extra("train", f"model.architecture = {architecture!r}", "torch")
    from fewjoules.engine.models.networks import parameter_count, statistics_count

    network = _own_network(architecture, shape, folder)
    return parameter_count(network), statistics_count(network)


def flops_per_sample(model: ModelTable, training: TrainingTable | None, folder: Path) -> float:
    """Return the floating-point operations of one sample in a training step: as stated, by formula, or counted."""
    if model.flops_per_sample is not None:
        return model.flops_per_sample
    architecture = model.architecture
    if architecture is None:
        raise InvalidInputError(
            "model.flops_per_sample is missing: joules_per_flop of a device needs it where the model is given by its "
            "parameters (a number above 0: the operations of one sample in a training step)"
        )
    shape = _shape(model, architecture, training, folder)
    if shape is None:
        raise InvalidInputError(
            "model.flops_per_sample is missing: operations are not counted where network and data are both your "
            "own; give a number above 0, six for each multiply-add of one sample in the forward pass"
        )
    if not is_own(architecture):
        return ARCHITECTURES[architecture].flops_per_sample(shape, **_sizes(model, architecture))
    return _counted_flops(architecture, shape, folder)


def _shape(model: ModelTable, architecture: str, training: TrainingTable | None, folder: Path) -> Shape | None:
    """Return the images or text that the network is built for; None if network and data are the user's own."""
    own = is_own(architecture)
    if not own and architecture not in ARCHITECTURES:
        raise InvalidInputError(
            f"model.architecture must be one of {', '.join(ARCHITECTURES)} or 'package.module:function', "
            f"got {architecture!r}"
        )
    data = (training and training.data) or (None if own else ARCHITECTURES[architecture].usual_data)
    if data is None:
        raise InvalidInputError(
            f"model.architecture = {architecture!r} needs training.data, such as data = 'digits' in [training]"
        )
    if model.context is not None and data not in TEXTS:
        raise InvalidInputError(f"model.context is unused: training.data = {data!r} is no text")
    if data in TEXTS:
        shape: Shape = Text(model.context or USUAL_CONTEXT, TEXTS[data])
    elif is_own(data):
        if own:
            return None
        shape = own_data(data, folder).shape()
    else:
        shape = Images(*SHAPES[data], CLASSES)
    if not own:
        _require_fit(architecture, shape, data)
    return shape


def _require_fit(architecture: str, shape: Shape, data: str) -> None:
    known = ARCHITECTURES[architecture]
    if not isinstance(shape, known.takes):
        wanted = "text, such as data = 'shakespeare'" if known.takes is Text else "images, such as data = 'digits'"
        raise InvalidInputError(f"model.architecture = {architecture!r} needs {wanted}, got training.data = {data!r}")
    if isinstance(shape, Images) and min(shape.height, shape.width) < known.smallest_side:
        raise InvalidInputError(
            f"model.architecture = {architecture!r} needs larger images than training.data = {data!r}"
        )


def _sizes(model: ModelTable, architecture: str) -> dict[str, int]:
    """Return all sizes of the network, those of [model] and usual ones."""
    try:
        return ARCHITECTURES[architecture].all_sizes(model.sizes())
    except InvalidInputError as error:
        raise InvalidInputError(f"model.{error}") from error


def _require_unused(model: ModelTable, keys: tuple[str, ...], reason: str) -> None:
    for key in keys:
        if getattr(model, key) is not None:
            raise InvalidInputError(f"model.{key} is unused: {reason}")


def _own_network(architecture: str, shape: Shape | None, folder: Path) -> Any:
    """Build the user's network, to count its numbers; this loads PyTorch and runs the user's function."""
    from fewjoules.engine.models.networks import build_for

    try:
        return build_for(architecture, shape, seed=0, folder=folder)
    except InvalidInputError as error:
        raise InvalidInputError(f"model.{error}") from error


def _counted_flops(architecture: str, shape: Shape, folder: Path) -> float:
    require_extra("train", f"model.architecture = {architecture!r}", "torch")
    from fewjoules.engine.models.networks import counted_flops_per_sample

    network = _own_network(architecture, shape, folder)
    try:
        flops = counted_flops_per_sample(network, shape)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidInputError(
            f"model.flops_per_sample is missing, and counting the operations of {architecture!r} failed: {reason}"
        ) from error
    if flops == 0:
        raise InvalidInputError(
            f"model.flops_per_sample is missing, and {architecture!r} has no operation that PyTorch counts"
        )
    return flops
