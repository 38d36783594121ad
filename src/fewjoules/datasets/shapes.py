"""What samples look like, known without reading them.

``SHAPES`` has (channels, height, width) of the images of each data set, ``TEXTS`` the number of different characters of
each text, whose windows are ``USUAL_CONTEXT`` characters long unless [model] says otherwise.
"""

from fewjoules.datasets.text import ALPHABET

_MNIST = (1, 28, 28)
SHAPES = {
    "digits": (1, 8, 8),
    "mnist": _MNIST,
    "fashion-mnist": _MNIST,
    "cifar10": (3, 32, 32),
    "qmnist": _MNIST,
}
CLASSES = 10  # of every one of them
TEXTS = {"shakespeare": len(ALPHABET)}
USUAL_CONTEXT = 80
DATASETS = (*SHAPES, *TEXTS)
