"""What samples look like, known without reading them: (channels, height, width) of the images of each data set."""

_MNIST = (1, 28, 28)
SHAPES = {
    "digits": (1, 8, 8),
    "mnist": _MNIST,
    "fashion-mnist": _MNIST,
    "cifar10": (3, 32, 32),
    "qmnist": _MNIST,
}
CLASSES = 10  # of every one of them
