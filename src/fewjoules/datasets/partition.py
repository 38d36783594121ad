"""Partition samples among clients. No sample goes to two clients, and every client gets at least one.

Every sample goes to a client, but for those of roles that do not take part.

Each function returns the sorted sample indices of each client and takes its random numbers from ``rng``.
"""

import heapq
from collections.abc import Iterable

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_integer, require_number

MAX_CLIENTS = 10_000_000
MIN_CONCENTRATION, MAX_CONCENTRATION = 1e-6, 1e9
_NEGLIGIBLE = 1e-100  # if the proportions of the labels left sum to less, they are drawn anew


def iid(labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
    """Give samples to clients at random; sizes differ by at most 1."""
    _require_enough("samples", _vector("labels", labels).size, "clients", clients)
    return _sorted(np.array_split(rng.permutation(labels.size), clients))


def dirichlet(labels: IntArray, clients: int, concentration: float, rng: np.random.Generator) -> list[IntArray]:
    """Give clients of equal size (within 1) their own label proportions, after Hsu, Qi and Brown (2019).

    The proportions follow a Dirichlet law around those of all labels; for balanced labels its parameters all equal
    ``concentration``: small gives a client few labels, large gives all clients the same mix. Clients are served in
    random order; when a label has run out, a client takes more of its other labels, or draws anew among those left.
    """
    present, codes, stock = np.unique(_vector("labels", labels), return_inverse=True, return_counts=True)
    _require_enough("samples", labels.size, "clients", clients)
    require_number("concentration", concentration, low=MIN_CONCENTRATION, high=MAX_CONCENTRATION)
    prior = concentration * present.size * stock / labels.size
    order = rng.permutation(labels.size)
    order = order[np.argsort(codes[order], kind="stable")]  # by label, at random within it
    next_of_label = np.cumsum(stock) - stock
    sizes = [len(part) for part in np.array_split(order, clients)]
    dealt: list[IntArray] = [np.empty(0, dtype=np.int64)] * clients
    for client in rng.permutation(clients).tolist():
        counts = _draw_counts(prior, stock, sizes[client], rng)
        runs = zip(next_of_label.tolist(), counts.tolist(), strict=True)
        dealt[client] = np.concatenate([order[start : start + count] for start, count in runs])
        next_of_label, stock = next_of_label + counts, stock - counts
    return _sorted(dealt)


def shards(labels: IntArray, clients: int, shards_per_client: int, rng: np.random.Generator) -> list[IntArray]:
    """Sort samples by label, cut them into equal shards and give each client some, after McMahan et al. (2017)."""
    _require_enough("samples", _vector("labels", labels).size, "clients", clients)
    require_integer("shards_per_client", shards_per_client, low=1, high=MAX_CLIENTS)
    number = clients * shards_per_client
    _require_enough("samples", labels.size, "shards", number)
    order = rng.permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    cut = np.array_split(order, number)
    dealt = rng.permutation(number).reshape(clients, shards_per_client).tolist()
    return _sorted(np.concatenate([cut[shard] for shard in row]) for row in dealt)


def writers(writer_ids: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
    """Give each writer, from the most to the least prolific, to the client with the fewest samples so far."""
    _, codes, counts = np.unique(_vector("writer_ids", writer_ids), return_inverse=True, return_counts=True)
    _require_enough("writers", counts.size, "clients", clients)
    shuffled = rng.permutation(counts.size)
    dealt_to = rng.permutation(clients)
    queue = [(0, place) for place in range(clients)]
    client_of_writer = np.empty(counts.size, dtype=np.int64)
    for writer in shuffled[np.argsort(-counts[shuffled], kind="stable")].tolist():
        size, place = queue[0]
        client_of_writer[writer] = dealt_to[place]
        heapq.heapreplace(queue, (size + int(counts[writer]), place))
    client_of_sample = client_of_writer[codes]
    order = np.argsort(client_of_sample, kind="stable")
    ends = np.cumsum(np.bincount(client_of_sample, minlength=clients))
    return _sorted(np.split(order, ends[:-1]))


def roles(role_ids: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
    """Give each client one role, at random; with fewer clients than roles, those with the most samples take part."""
    _, codes, counts = np.unique(_vector("role_ids", role_ids), return_inverse=True, return_counts=True)
    _require_enough("roles", counts.size, "clients", clients)
    largest = np.argsort(-counts, kind="stable")[:clients]
    return [np.flatnonzero(codes == role) for role in rng.permutation(largest).tolist()]


def _draw_counts(prior: FloatArray, stock: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw how many samples of each label a client takes; every pass fills the client or empties a label."""
    proportions = rng.dirichlet(prior)
    counts = np.zeros_like(stock)
    while (lacking := size - int(counts.sum())) > 0:
        left = stock - counts
        weights = np.where(left > 0, proportions, 0.0)
        if weights.sum() < _NEGLIGIBLE:
            weights[left > 0] = rng.dirichlet(prior[left > 0])
        counts += np.minimum(_rounded(weights * (lacking / weights.sum()), lacking, rng), left)
    return counts


def _rounded(expected: FloatArray, total: int, rng: np.random.Generator) -> IntArray:
    """Whole numbers that add to ``total``: rounded down, the rest at random in proportion to what was cut off."""
    whole = np.floor(expected).astype(np.int64)
    rest = total - int(whole.sum())
    cut_off = expected - whole
    return whole + rng.multinomial(rest, cut_off / cut_off.sum()) if rest else whole


def _vector(name: str, values: IntArray) -> IntArray:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        got = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise InvalidInputError(f"{name} must be a one-dimensional array of integers, got {got}")
    return values


def _require_enough(things: str, number: int, receivers: str, wanted: int) -> None:
    require_integer(f"the number of {receivers}", wanted, low=1, high=MAX_CLIENTS)
    if number < wanted:
        raise InvalidInputError(f"there must be at least as many {things} as {receivers} ({wanted}), got {number}")


def _sorted(parts: Iterable[IntArray]) -> list[IntArray]:
    return [np.sort(part).astype(np.int64, copy=False) for part in parts]
