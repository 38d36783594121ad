"""Orders for a client, for tests of what it does with them."""

from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.engine.algorithm.rule import InnerRule

SGD = InnerRule(kind="sgd", momentum=0.0, beta2=0.999, epsilon=1e-8, weight_decay=0.0, clip=None, state="reset")


def order_of(number=1, *, client=0, k=1, local_steps=1, accepted=0, **given):
    """An order of round ``number``; ``accepted`` is the last round whose upload the server accepted."""
    usual = {"seed": 5, "compressor": "top-k", "values": "float32", "levels": 15}
    usual |= {"rule": SGD, "error_feedback": True, "residual_decay": 1.0}
    return ClientOrder(
        round=number,
        client=client,
        first_step=(number - 1) * local_steps,
        k=k,
        batch_sizes=(2,) * local_steps,
        rates=(0.1,) * local_steps,
        accepted_round=accepted,
        **usual | given,
    )
