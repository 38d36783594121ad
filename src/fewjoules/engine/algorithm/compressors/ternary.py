"""Sparse ternary compression [SATTLER19]: the signs of the k largest entries, times their mean magnitude."""

from fewjoules.engine.algorithm.compressors import top_k
from fewjoules.engine.algorithm.compressors.base import Compressor

COMPRESSOR = Compressor(name="ternary", choose=top_k.choose, kind="ternary", on_rows=top_k.on_rows)
