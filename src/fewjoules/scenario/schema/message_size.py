"""message_size and downlink_message_size of [model] and [recipe]: the bits of a message as a law of its sparsity."""

from typing import Annotated

from pydantic import Field

from fewjoules.physics.message_size import MAX_ENTRY_BITS, MAX_FIXED_BITS, MAX_SCALE, MessageSize
from fewjoules.scenario.schema.base import Table


class MessageSizeTable(Table):
    """The law of a message's bits."""

    fixed_bits: Annotated[float, Field(ge=0.0, le=MAX_FIXED_BITS)] = 0.0
    scale: Annotated[float, Field(gt=0.0, le=MAX_SCALE)] = 1.0
    entry_bits: Annotated[float, Field(ge=-MAX_ENTRY_BITS, le=MAX_ENTRY_BITS)]

    def law(self) -> MessageSize:
        """The law of messages."""
        return MessageSize(**self.model_dump())
