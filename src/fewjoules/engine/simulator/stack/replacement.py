"""What all layers for a stack of clients have in common with the layers that they replace."""

from torch import nn


class Replacement(nn.Module):
    """A layer in the place of one of PyTorch's, in the same mode and with its plain attributes, such as sizes."""

    def __init__(self, layer: nn.Module) -> None:
        """Take over what code around the layer may ask for, beside parameters and buffers."""
        super().__init__()
        vars(self).update({name: value for name, value in vars(layer).items() if not name.startswith("_")})
