"""What a scenario's model holds and computes: numbers of parameters and statistics, and operations of a step."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fewjoules.datasets.shapes import CLASSES, SHAPES
from fewjoules.engine.models.architectures import ARCHITECTURES, Images
from fewjoules.engine.models.architectures.base import is_own
from fewjoules.errors import InvalidInputError
from fewjoules.scenario.schema.tables import ModelTable
from fewjoules.scenario.schema.training import TrainingTable


def sizes(model: ModelTable, training: TrainingTable | None, folder: Path) -> tuple[int, int]:
    """Return the numbers of parameters and statistics of the model."""
    parameters, architecture = model.parameters, model.architecture
    if (parameters is None) == (architecture is None):
        given = "both" if parameters is not None else "neither"
        raise InvalidInputError(f"model needs exactly one of parameters and architecture, got {given}")
    if parameters is not None:
        return parameters, 0
    assert architecture is not None
    images = _images(architecture, training)
    if not is_own(architecture):
        known = ARCHITECTURES[architecture]
        return known.parameters(images), known.statistics
    from fewjoules.engine.models.networks import parameter_count, statistics_count

    network = _own_network(architecture, images, folder)
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
    images = _images(architecture, training)
    if not is_own(architecture):
        return ARCHITECTURES[architecture].flops_per_sample(images)
    return _counted_flops(architecture, images, folder)


def _images(architecture: str, training: TrainingTable | None) -> Images:
    """Return the shape of the images that the network is built for."""
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
    images = Images(*SHAPES[data], CLASSES)
    if not own and min(images.height, images.width) < ARCHITECTURES[architecture].smallest_side:
        raise InvalidInputError(
            f"model.architecture = {architecture!r} needs larger images than training.data = {data!r}"
        )
    return images


def _own_network(architecture: str, images: Images, folder: Path) -> Any:
    """Build the user's network, to count its numbers; this loads PyTorch and runs the user's function."""
    from fewjoules.engine.models.networks import build

    try:
        return build(architecture, **asdict(images), seed=0, folder=folder)
    except InvalidInputError as error:
        raise InvalidInputError(f"model.{error}") from error


def _counted_flops(architecture: str, images: Images, folder: Path) -> float:
    from fewjoules.engine.models.networks import counted_flops_per_sample

    network = _own_network(architecture, images, folder)
    try:
        flops = counted_flops_per_sample(network, images)
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
