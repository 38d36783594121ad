"""Orders for a client, for tests of what it does with them."""

from fewjoules.engine.algorithm.round import ClientOrder


def order_of(number=1, *, client=0, k=1, local_steps=1, accepted=0, **given):
    """An order of round ``number``; ``accepted`` is the last round whose upload the server accepted."""
    usual = {"seed": 5, "compressor": "top-k", "values": "float32", "levels": 15}
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
