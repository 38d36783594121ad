"""Who is let in, and as whom."""

import pytest
from flwr.clientapp import ClientApp

from fewjoules.errors import FewJoulesError
from fewjoules.integrations.flower.mod import fewjoules_mod
from fewjoules.integrations.flower.roster import ASK_AGAIN_SECONDS, Roster
from tests.integrations.flower.grid import JumpingClock, LocalGrid


def app():
    made = ClientApp(mods=[fewjoules_mod])
    made.train()(lambda message, context: None)
    return made


def node(client, **more):
    return {"app": app(), "config": {"client-id": client}, **more}


def test_a_second_node_waits_until_the_first_is_gone():
    """A node that is killed and comes back without a key has another number, while Flower still shows the old one."""
    grid, roster = LocalGrid({1: node("a"), 2: node("b")}), Roster(clock=JumpingClock().clock())
    roster.gather(grid, 2, 10.0)
    grid.nodes[3] = node("a")
    roster.refresh(grid)
    assert roster.node_of("a") == 1
    del grid.nodes[1]
    roster.refresh(grid)
    assert roster.node_of("a") == 3
    assert roster.node_of("b") == 2
    asked = [message.metadata.dst_node_id for message in grid.sent]
    assert sorted(asked) == [1, 2, 3]


def test_a_silent_node_is_asked_again_later():
    clock = JumpingClock()
    grid, roster = LocalGrid({1: node("a")}), Roster(clock=clock.clock())
    grid.lost = lambda message, reply: True
    roster.refresh(grid)
    grid.lost = lambda message, reply: False
    roster.refresh(grid)
    assert roster.node_of("a") is None
    clock.sleep(ASK_AGAIN_SECONDS)
    roster.refresh(grid)
    assert roster.node_of("a") == 1


def test_a_node_must_have_the_name_and_the_key_that_it_is_known_by():
    nodes = {1: node("a", name="a", key=b"ka"), 2: node("b", name="c", key=b"kb")}
    grid, roster = LocalGrid(nodes), Roster({"d": b"kd"}, clock=JumpingClock().clock())
    grid.nodes[3] = node("d", key=b"other")
    roster.refresh(grid)
    assert set(roster.members) == {"a"}


def test_too_few_clients_are_named():
    grid, roster = LocalGrid({1: node("a")}), Roster(clock=JumpingClock().clock())
    with pytest.raises(FewJoulesError, match="3 clients must be online to begin, got 1 in 30 s: a"):
        roster.gather(grid, 3, 30.0)
