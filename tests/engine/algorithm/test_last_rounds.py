"""Last rounds that look unchanged are those of arrays that are copied for every change, whichever is changed next."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.engine.algorithm.last_rounds import LastRounds

CLIENTS = 5
changes = st.tuples(
    st.integers(0, 9), st.sets(st.integers(0, CLIENTS - 1)).map(lambda some: np.array(sorted(some), int))
)


@settings(deadline=None, max_examples=100)
@given(st.lists(changes, max_size=12))
def test_every_version_stays_what_a_copy_would_be(told):
    versions = [(LastRounds(np.zeros(CLIENTS, np.int64)), np.zeros(CLIENTS, np.int64))]
    for number, (which, clients) in enumerate(told, start=1):
        rounds, array = versions[which % len(versions)]
        copy = array.copy()
        copy[clients] = number
        versions.append((rounds.with_round(clients, number), copy))
    for rounds, array in versions:
        assert np.asarray(rounds).tolist() == array.tolist()
        assert rounds[np.array([3, 1])].tolist() == array[[3, 1]].tolist()
        assert len(rounds) == CLIENTS
