"""The files of each data set: names, official addresses, sizes and checksums."""

from collections.abc import Mapping
from dataclasses import dataclass

from fewjoules.datasets.cifar10 import TRAIN_FILES


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A published file. ``digest`` is "sha256:..." or "md5:..."; ``folder`` is where a copy of it is kept.

    ``unpacked`` are names that stand for the same data unpacked, ``unreadable`` names of versions that are not read.
    """

    name: str
    base_url: str
    size_bytes: int
    digest: str
    folder: str
    unpacked: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where the file is downloaded from."""
        return self.base_url + self.name


def _zipped(folder: str, base_url: str, name: str, size_bytes: int, sha256: str) -> RemoteFile:
    return RemoteFile(
        name=f"{name}.gz",
        base_url=base_url,
        size_bytes=size_bytes,
        digest=f"sha256:{sha256}",
        folder=folder,
        unpacked=(name,),
    )


TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
QMNIST_LABELS = "qmnist-train-labels-idx2-int.gz"
CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_QMNIST_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"

_MNIST = tuple(
    _zipped("mnist", _MNIST_URL, name, size_bytes, sha256)
    for name, size_bytes, sha256 in (
        ("train-images-idx3-ubyte", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
_FASHION_MNIST = tuple(
    _zipped("fashion-mnist", _FASHION_URL, name, size_bytes, sha256)
    for name, size_bytes, sha256 in (
        ("train-images-idx3-ubyte", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    )
)
_WRITERS = _zipped(
    "qmnist",
    _QMNIST_URL,
    "qmnist-train-labels-idx2-int",
    463_024,
    "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
)
_CIFAR10 = RemoteFile(
    name=CIFAR10_ARCHIVE,
    base_url=_CIFAR10_URL,
    size_bytes=170_052_171,
    digest="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    folder="cifar10",
    unpacked=(f"cifar-10-batches-bin/{TRAIN_FILES[0]}", TRAIN_FILES[0]),
    unreadable=("cifar-10-batches-py", "cifar-10-python.tar.gz"),
)

SOURCES: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": _MNIST,
    "fashion-mnist": _FASHION_MNIST,
    "cifar10": (_CIFAR10,),
    "qmnist": (*_MNIST, _WRITERS),
}
