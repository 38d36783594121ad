"""A perceptron with two hidden layers of 200 units: the "2NN" of federated averaging [MCMAHAN17], 199,210 on MNIST."""

from typing import TYPE_CHECKING

from fewjoules.engine.models.architectures.base import Architecture, Images

if TYPE_CHECKING:
    from torch import nn

HIDDEN = 200


def build(images: Images) -> "nn.Module":
    """The network."""
    from torch import nn

    layers = [nn.Flatten(), nn.Linear(_pixels(images), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, images.classes))


def parameters(images: Images) -> int:
    """Weights and biases, layer by layer."""
    return (_pixels(images) + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * images.classes


def multiply_adds(images: Images) -> int:
    """Multiply-adds of one image, layer by layer."""
    return (_pixels(images) + HIDDEN + images.classes) * HIDDEN


def _pixels(images: Images) -> int:
    return images.channels * images.height * images.width


ARCHITECTURES = (
    Architecture(name="mlp", build=build, parameters=parameters, multiply_adds=multiply_adds, usual_data="mnist"),
)
