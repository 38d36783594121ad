"""Array types for signatures."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
