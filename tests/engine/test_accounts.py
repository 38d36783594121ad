"""Every row of the ledger against a literal recomputation from what was sent, to whom and over which channel.

What a client sent is not part of the simulator's state. ``sent_by`` finds it: a second simulator runs the same round
from the same state and loses every other upload, so that the mean update of four clients is a quarter of that one
message and the mean of the buffers is that client's.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.algorithm.streams import stream
from fewjoules.errors import InvalidInputError
from fewjoules.physics.fading import Fading
from fewjoules.provenance import MARKS
from tests.engine.simulators import simulator_of
from tests.reference import training as reference
from tests.reference.downlink import positions_changed

SIZES = [5, 3, 6, 4]
CLIENTS = reference.made_up_clients(SIZES, 6, 3, 1)
COSTS = {
    "joules_per_bit": np.array([1e-3, 2e-3, 3e-3, 4e-3]),
    "joules_per_step": np.array([0.1, 0.2, 0.3, 0.4]),
    "message_joules": np.array([5.0, 6.0, 7.0, 8.0]),
    "seconds_per_bit": np.array([1e-4, 5e-4, 2e-4, 1e-4]),
    "seconds_per_step": np.array([0.01, 0.04, 0.02, 0.03]),
    "message_seconds": np.array([0.5, 0.25, 0.125, 1.0]),
    "joules_per_sample": np.array([0.5, 0.25, 0.125, 1.0]),
    "downlink_joules_per_bit": np.array([1e-4, 2e-4, 3e-4, 4e-4]),
    "downlink_seconds_per_bit": np.array([1e-5, 2e-5, 3e-5, 4e-5]),
}
OPTIONS = {
    "local_steps": 2,
    "sparsity": np.array([1.0, 3.0, 5.0, 100.0]),
    "rounds": 4,
    "learning_rate": 0.2,
    "batch_size": 2,
    "batch_growth": 1.1,
    "seed": 5,
}


def fleet(**changes):
    return fj.Fleet(**COSTS | changes)


def seeded_net(*layers):
    module = nn.Sequential(*layers)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return module


def linear():
    return seeded_net(nn.Linear(6, 3))


def with_buffers():
    return seeded_net(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 3))


def train(module=None, **changes):
    """A run whose last round is evaluated."""
    options = OPTIONS | {"device": "cpu", "test": CLIENTS[0]} | changes
    return fj.train(linear() if module is None else module, clients=CLIENTS, **options)


def simulator(module, costs=None, **changes):
    return simulator_of(module, CLIENTS, OPTIONS | changes, fleet=costs, threads=1, chunk=1)


@dataclass(frozen=True)
class Snapshot:
    """The server's state, and what all clients keep."""

    server: ServerState
    clients: dict[str, torch.Tensor]


def rounds(module, costs=None, **changes):
    """What is there before, ledger rows and the server's state after each round."""
    running = simulator(module, costs, **changes)
    try:
        for _ in range(running.options.rounds):
            before = Snapshot(running.state, running.backend.save())
            rows = running.start_round()().rows
            yield before, rows, running.state
    finally:
        running.close()


def sent_by(client, before, module, **changes):
    """Update and buffers of one of four clients in the round after ``before``; no entry sent may be zero."""
    others = set(range(4)) - {client}
    probe = simulator(module, **changes | {"failures": {before.server.round + 1: others}, "downlink": "free"})
    try:
        probe.state = before.server
        probe.backend.restore(before.clients)
        probe.start_round()()
        dense = np.float32(4.0) * probe.state.broadcast.numpy()
    finally:
        probe.close()
    positions = np.flatnonzero(dense)
    update = fj.SparseUpdate(size=dense.size, positions=positions, values=dense[positions])
    return update, probe.state.buffers.numpy()


def changed_entries(state):
    """The last broadcast as a message: the entries of the weights that changed."""
    change = state.broadcast.numpy()
    positions = np.flatnonzero(change)
    return fj.SparseUpdate(size=change.size, positions=positions, values=change[positions])


def whole(vector):
    """Length of a message with every entry of a vector as it is."""
    vector = np.asarray(vector, dtype=np.float32)
    return len(fj.codec.encode(fj.SparseUpdate(size=vector.size, positions=np.arange(vector.size), values=vector)))


# --- Payloads


@pytest.mark.parametrize("build", [linear, with_buffers])
def test_a_payload_is_as_long_as_the_message_that_the_codec_writes(build):
    module = build()
    for before, rows, _ in rounds(module, batch_size=None):
        for row in rows:
            sent, statistics = sent_by(int(row["device"]), before, module, batch_size=None)
            assert row["entries"] == sent.count == max(1, round(sent.size / OPTIONS["sparsity"][row["device"]]))
            assert row["payload_bytes"] == len(fj.codec.encode(sent)) + (whole(statistics) if statistics.size else 0)
            assert not row["payload_written"]  # counted by encoded_size


@pytest.mark.parametrize("values", ["float16", "bfloat16", "int8"])
def test_a_payload_with_rounded_values_is_as_long_as_its_message(values):
    module = linear()
    for before, rows, _ in rounds(module, values=values, rounds=2):
        for row in rows:
            sent, _ = sent_by(int(row["device"]), before, module, values=values)
            message = fj.codec.encode(sent, values=values)
            assert row["payload_bytes"] == len(message)
            assert fj.codec.decode(message) == sent, "what the server used is what the message says"


@pytest.mark.parametrize("compressor", ["random-k", "none", "ternary"])
def test_a_payload_of_another_compressor_is_as_long_as_its_message(compressor):
    module = linear()
    kind = "ternary" if compressor == "ternary" else "float32"
    for before, rows, _ in rounds(module, compressor=compressor, rounds=2):
        for row in rows:
            sent, _ = sent_by(int(row["device"]), before, module, compressor=compressor)
            message = fj.codec.encode(sent, values=kind)
            assert row["payload_bytes"] == len(message)
            assert row["entries"] == sent.count
            assert fj.codec.decode(message) == sent


def test_a_lost_upload_is_paid_for_like_any_other():
    delivered, lost = train(rounds=1, fleet=fleet()), train(rounds=1, fleet=fleet(), failures={1: {0, 2}})
    assert lost.ledger["delivered"].tolist() == [False, True, False, True]
    assert np.array_equal(lost.ledger["payload_bytes"], delivered.ledger["payload_bytes"])
    assert np.array_equal(lost.ledger["uplink_joules"], delivered.ledger["uplink_joules"])


def test_a_long_message_is_counted_and_the_ledger_says_so():
    """10,100 entries are more than is written. From weights of zero, the new weights are minus the message."""
    data = reference.made_up_clients([3], 100, 100, 0)
    module = nn.Linear(100, 100)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    run = fj.train(
        module, clients=data, test=data[0], local_steps=1, sparsity=1.0, rounds=1, learning_rate=0.1, device="cpu"
    )
    assert not run.ledger["payload_written"].any()
    assert run.ledger["entries"].tolist() == [10_100]
    message = whole(-reference.flat(run.model))
    assert run.ledger["payload_bytes"][0] == pytest.approx(message, rel=1e-3)


# --- Joules and seconds


def test_uplink_and_compute_cost_what_the_fleet_says():
    ledger = train(fleet=fleet(), downlink="free").ledger
    for row in ledger:
        device, bits = row["device"], 8 * int(row["payload_bytes"])
        joules = COSTS["joules_per_bit"][device] * bits + COSTS["message_joules"][device]
        compute = COSTS["joules_per_step"][device] * 2 + COSTS["joules_per_sample"][device] * int(row["samples"])
        seconds = COSTS["seconds_per_bit"][device] * bits + COSTS["message_seconds"][device]
        assert row["uplink_joules"] == row["planned_uplink_joules"] == pytest.approx(joules, rel=1e-14)
        assert row["compute_joules"] == pytest.approx(compute, rel=1e-14)
        assert row["uplink_seconds"] == pytest.approx(seconds, rel=1e-14)
        assert row["compute_seconds"] == pytest.approx(COSTS["seconds_per_step"][device] * 2, rel=1e-14)
        assert row["downlink_bytes"] == row["downlink_joules"] == row["downlink_seconds"] == 0


TAILS = {
    "tail_watts": [1.0, 2.0, 0.0, 3.0],
    "tail_seconds": [0.5, 3.0, 2.0, 0.0],
    "promotion_joules": [7.0, 5.0, 3.0, 1.0],
}
CODEC = {
    "codec_joules_per_parameter": [1e-3, 2e-3, 3e-3, 0.0],
    "codec_joules_per_entry": [0.5, 0.25, 0.0, 2.0],
    "codec_seconds_per_parameter": [1e-2, 2e-2, 0.0, 3e-2],
    "codec_seconds_per_entry": [0.25, 0.0, 0.125, 0.5],
}


def literal_tail(device, gap, download):
    """The radio's power integrated over a round, event by event."""
    watts, seconds, wake = (TAILS[name][device] for name in ("tail_watts", "tail_seconds", "promotion_joules"))
    joules, up_until = 0.0, -math.inf
    for time in ([0.0] if download else []) + [gap]:
        if time >= up_until:
            joules += wake
        else:
            joules -= watts * (up_until - time)
        joules += watts * seconds
        up_until = time + seconds
    return joules


@pytest.mark.parametrize("downlink", ["free", "charged"])
def test_tails_and_promotions_are_those_of_a_radio_that_is_woken_and_falls_asleep(downlink):
    ledger = train(fleet=fleet(**TAILS, seconds_per_sample=[0.01, 0.4, 0.3, 0.2]), downlink=downlink).ledger
    for row in ledger:
        gap = row["compute_seconds"]
        assert row["tail_joules"] == pytest.approx(literal_tail(row["device"], gap, downlink == "charged"), rel=1e-13)
    seconds = COSTS["seconds_per_step"][ledger["device"]] * 2
    more = np.array([0.01, 0.4, 0.3, 0.2])[ledger["device"]] * ledger["samples"]
    np.testing.assert_allclose(ledger["compute_seconds"], seconds + more, rtol=1e-14)


def test_coding_costs_a_pass_over_the_model_and_every_entry():
    ledger = train(fleet=fleet(**CODEC, **TAILS), downlink="free").ledger
    parameters = 6 * 3 + 3
    for row in ledger:
        for unit in ("joules", "seconds"):
            per = [CODEC[f"codec_{unit}_per_{what}"][row["device"]] for what in ("parameter", "entry")]
            assert row[f"codec_{unit}"] == pytest.approx(per[0] * parameters + per[1] * row["entries"], rel=1e-14)


def test_every_joule_of_the_ledger_has_a_mark():
    marks = {"compute": "measured", "uplink": ["fitted", "profile", "assumed", "measured"]}
    ledger = train(fleet=fleet(provenance=marks)).ledger
    assert {MARKS[code] for code in ledger["compute_mark"]} == {"measured"}
    assert {MARKS[code] for code in ledger["tail_mark"]} == {"assumed"}
    for row in ledger:
        assert MARKS[row["uplink_mark"]] == marks["uplink"][row["device"]]


def test_a_tail_needs_to_know_how_long_the_steps_take():
    with pytest.raises(InvalidInputError, match="tail_seconds with a downlink needs seconds_per_step"):
        fleet(**TAILS, seconds_per_step=None)


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ("guessed", "one of measured, fitted, profile, assumed, got 'guessed'"),
        ({"radio": "measured"}, "of uplink, downlink, tail, compute, codec, got 'radio'"),
        ({"uplink": ["measured"] * 3}, "provenance of uplink must have 4 entries"),
        ({"uplink": np.array([0, 1, 2, 4], np.uint8)}, "from 0 to 3, got 4"),
    ],
)
def test_a_mark_that_does_not_exist_is_refused(marks, says):
    with pytest.raises(InvalidInputError, match=says):
        fleet(provenance=marks)


def test_without_a_cost_of_samples_compute_is_steps_alone():
    ledger = train(fleet=fleet(joules_per_sample=None)).ledger
    np.testing.assert_allclose(ledger["compute_joules"], 2 * COSTS["joules_per_step"][ledger["device"]], rtol=1e-14)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.sampled_from([None, 1, 3, 10]), st.sampled_from([1.0, 1.3]), st.sampled_from([0.5, 1.0]))
def test_samples_are_those_of_all_steps_of_the_round(local_steps, batch_size, growth, participation):
    run = train(
        local_steps=local_steps, batch_size=batch_size, batch_growth=growth, participation=participation, rounds=3
    )
    total = 0
    for number in (1, 2, 3):
        steps = range((number - 1) * local_steps, number * local_steps)
        rows = run.ledger[run.ledger["round"] == number]
        wanted = [[math.inf if batch_size is None else int(growth**t * batch_size) for t in steps]] * rows.size
        samples = [[min(b, SIZES[d]) for b in row] for row, d in zip(wanted, rows["device"], strict=True)]
        assert rows["samples"].tolist() == [sum(row) for row in samples]
        assert run.metrics["batch_size"][number - 1] == max(max(row) for row in samples)
        total += int(rows["samples"].sum())
        assert run.metrics["epochs"][number - 1] == pytest.approx(total / sum(SIZES))
    assert np.all(run.ledger["local_steps"] == local_steps)


def test_the_energy_of_a_run_is_the_sum_of_its_ledger_and_of_its_payloads():
    run = train(with_buffers(), fleet=fleet(), downlink="charged", participation=0.5, rounds=6)
    ledger, device = run.ledger, run.ledger["device"]
    kinds = ("uplink_joules", "downlink_joules", "compute_joules")
    assert run.energy_joules == pytest.approx(sum(ledger[kind].sum() for kind in kinds), rel=1e-13)
    again = (
        COSTS["joules_per_bit"][device] * 8 * ledger["payload_bytes"]
        + COSTS["message_joules"][device]
        + COSTS["downlink_joules_per_bit"][device] * 8 * ledger["downlink_bytes"]
        + COSTS["joules_per_step"][device] * ledger["local_steps"]
        + COSTS["joules_per_sample"][device] * ledger["samples"]
    )
    assert run.energy_joules == pytest.approx(again.sum(), rel=1e-13)


def test_metrics_are_sums_over_the_ledger_and_a_round_takes_as_long_as_its_slowest_device():
    run = train(fleet=fleet(), downlink="charged", rounds=5)
    ledger, metrics = run.ledger, run.metrics
    radio = ledger["uplink_joules"] + ledger["downlink_joules"]
    seconds = ledger["uplink_seconds"] + ledger["downlink_seconds"] + ledger["compute_seconds"]
    assert metrics["round"].tolist() == [1, 2, 3, 4, 5]
    for row in metrics:
        now, so_far = ledger["round"] == row["round"], ledger["round"] <= row["round"]
        assert row["round_joules"] == pytest.approx((radio + ledger["compute_joules"])[now].sum(), rel=1e-13)
        assert row["round_seconds"] == pytest.approx(seconds[now].max(), rel=1e-13)
        assert row["total_radio_joules"] == pytest.approx(radio[so_far].sum(), rel=1e-13)
        assert row["total_compute_joules"] == pytest.approx(ledger["compute_joules"][so_far].sum(), rel=1e-13)
        assert row["total_joules"] == pytest.approx(row["total_radio_joules"] + row["total_compute_joules"])
        assert row["total_payload_bytes"] == ledger["payload_bytes"][so_far].sum()
    np.testing.assert_allclose(metrics["total_seconds"], np.cumsum(metrics["round_seconds"]))


COUNTED = ("round", "device", "delivered", "local_steps", "samples", "entries", "payload_bytes", "downlink_bytes")


def test_without_a_fleet_joules_and_seconds_are_missing_and_the_rest_is_the_same():
    run, paid = train(), train(fleet=fleet(), downlink="free")
    for name in run.ledger.dtype.names:
        if name.endswith(("joules", "seconds")):
            assert np.isnan(run.ledger[name]).all(), name
    for name in COUNTED:
        assert np.array_equal(run.ledger[name], paid.ledger[name])
    assert math.isnan(run.energy_joules)
    assert np.isnan(run.metrics["total_joules"]).all()
    assert np.array_equal(reference.flat(run.model), reference.flat(paid.model))


def test_times_that_are_not_known_are_missing_and_joules_are_not():
    run = train(fleet=fleet(seconds_per_bit=None, seconds_per_step=None))
    assert np.isnan(run.ledger["uplink_seconds"]).all()
    assert np.isnan(run.ledger["compute_seconds"]).all()
    assert np.isnan(run.metrics["total_seconds"]).all()
    assert np.isfinite(run.metrics["total_joules"]).all()


def test_every_round_is_in_ledger_and_metrics_without_a_test_set_too():
    run = train(test=None)
    assert run.metrics["round"].tolist() == [1, 2, 3, 4]
    assert np.bincount(run.ledger["round"]).tolist() == [0, 4, 4, 4, 4]


# --- Budgets


def test_a_run_stops_in_the_round_that_spends_the_energy_budget():
    free = train(fleet=fleet(), rounds=6)
    budget = (free.metrics["total_joules"][2] + free.metrics["total_joules"][3]) / 2
    run = train(fleet=fleet(), rounds=6, energy_budget_joules=budget)
    assert run.stop_reason == "energy budget"
    assert run.metrics["round"].tolist() == [1, 2, 3, 4]
    assert run.ledger.tobytes() == free.ledger[free.ledger["round"] <= 4].tobytes()


def test_a_run_stops_in_the_round_that_spends_the_time_budget():
    free = train(fleet=fleet(), rounds=6)
    run = train(fleet=fleet(), rounds=6, time_budget_seconds=float(free.metrics["total_seconds"][1]))
    assert run.stop_reason == "time budget"
    assert run.metrics["round"].tolist() == [1, 2]


def test_a_time_budget_needs_the_time_of_a_step_too():
    with pytest.raises(InvalidInputError, match="time_budget_seconds"):
        train(fleet=fleet(seconds_per_step=None), time_budget_seconds=1.0)


# --- Downlink


EXACT, COMPRESSED = {}, {"downlink_sparsity": 9.0, "downlink_values": "ternary"}
AT_RANDOM = {"downlink_sparsity": 4.0, "downlink_values": "qsgd", "levels": 7}


def change_sent(state, how):
    """The last broadcast as it is written: its entries before they were rounded, with the draws of its round."""
    draws = stream(OPTIONS["seed"], "downlink", state.round)
    kind = how.get("downlink_values", "float32")
    return fj.codec.encode(changed_entries(state), values=kind, levels=how.get("levels", 15), rng=draws)


def values_sent(models, held):
    """The present values of all weights that changed since the model after ``held`` rounds."""
    positions = np.array(positions_changed(models[held:]), dtype=np.int64)
    return fj.codec.encode(fj.SparseUpdate(size=models[-1].size, positions=positions, values=models[-1][positions]))


@pytest.mark.parametrize("build", [linear, with_buffers])
@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("how", [EXACT, COMPRESSED, AT_RANDOM], ids=["exact", "compressed", "at random"])
def test_a_charged_downlink_is_as_long_as_the_message_that_brings_a_client_up_to_date(build, participation, how):
    """Clients of the last round get its change, others what changed while they were away; buffers come whole."""
    held, models, seen = {}, [], set()
    options = {"participation": participation, "rounds": 10, "sparsity": np.full(4, 30.0), "local_steps": 1} | how
    for before, rows, _ in rounds(build(), fleet(**CODEC), **options):
        server = before.server
        models.append(server.weights.numpy())
        statistics = whole(server.buffers.numpy()) if server.buffers.numel() else 0
        for row in rows:
            forms = {"whole": whole(models[-1])}
            if held.get(row["device"]) == server.round - 1:
                forms["change"] = len(change_sent(server, how))
            elif row["device"] in held:
                forms["values"] = len(values_sent(models, held[row["device"]]))
            form = min(forms, key=forms.get)
            seen.add(form)
            assert row["downlink_bytes"] == forms[form] + statistics
            bits = 8 * row["downlink_bytes"]
            assert row["downlink_joules"] == pytest.approx(COSTS["downlink_joules_per_bit"][row["device"]] * bits)
            assert row["downlink_seconds"] == pytest.approx(COSTS["downlink_seconds_per_bit"][row["device"]] * bits)
            entries = {"whole": models[-1].size, "change": changed_entries(server).count}
            if form == "values":
                entries["values"] = len(positions_changed(models[held[row["device"]] :]))
            coded = CODEC["codec_joules_per_entry"][row["device"]] * (row["entries"] + entries[form])
            coded += CODEC["codec_joules_per_parameter"][row["device"]] * models[-1].size
            assert row["codec_joules"] == pytest.approx(coded)
            held[row["device"]] = server.round
    assert seen == {"whole", "change"} | ({"values"} if participation < 1.0 else set())


@pytest.mark.parametrize("outer", [{}, {"outer": "nesterov", "outer_rate": 0.7}, {"outer": "adam", "outer_rate": 0.02}])
def test_a_broadcast_tells_the_change_of_the_weights(outer):
    for before, _, after in rounds(linear(), rounds=3, **outer):
        assert after.broadcast.any()
        assert torch.equal(before.server.weights - after.broadcast, after.weights)


@pytest.mark.parametrize(("compressor", "values"), [("top-k", "float16"), ("ternary", "ternary"), ("qsgd", "qsgd")])
def test_a_broadcast_is_charged_for_the_values_that_clients_then_use(compressor, values):
    options = {"downlink": "charged", "compressor": compressor, "values": values, "sparsity": np.full(4, 20.0)}
    for before, rows, _ in rounds(linear(), fleet(), **options):
        if before.server.round:
            update = len(fj.codec.encode(changed_entries(before.server)))
            assert np.all(rows["downlink_bytes"] == min(whole(before.server.weights.numpy()), update))


def test_how_the_downlink_is_charged_changes_nothing_that_is_trained():
    free, charged = train(fleet=fleet(), downlink="free"), train(fleet=fleet(), downlink="charged")
    assert np.array_equal(reference.flat(free.model), reference.flat(charged.model))
    assert np.array_equal(free.ledger["uplink_joules"], charged.ledger["uplink_joules"])


@pytest.mark.parametrize(
    ("cost", "asked", "charged"),
    [
        (COSTS["downlink_joules_per_bit"], None, True),
        (COSTS["downlink_joules_per_bit"], "free", False),
        (COSTS["downlink_joules_per_bit"], "charged", True),
        (None, None, False),
        (None, "free", False),
    ],
    ids=str,
)
def test_receiving_is_charged_where_its_cost_is_known_unless_told_otherwise(cost, asked, charged):
    ledger = train(fleet=fleet(downlink_joules_per_bit=cost), downlink=asked).ledger
    for name in ("downlink_bytes", "downlink_joules"):
        assert np.all((ledger[name] > 0) == charged)
    without_fleet = train(downlink=None if asked == "charged" else asked).ledger
    assert not without_fleet["downlink_bytes"].any()


def test_a_charged_downlink_needs_its_cost():
    with pytest.raises(InvalidInputError, match=r"downlink.*downlink_joules_per_bit"):
        train(fleet=fleet(downlink_joules_per_bit=None), downlink="charged")
    with pytest.raises(InvalidInputError, match=r"downlink.*downlink_joules_per_bit"):
        train(downlink="charged")


# --- A channel that is drawn

SNR = 10.0


def average_efficiency(gains):
    return float(np.log2(1.0 + SNR * gains).mean())


GAINS = {
    "none": lambda rng, count: np.ones(count),
    "rayleigh": lambda rng, count: -np.log(rng.random(count)),
    "nakagami": lambda rng, count: stats.gamma(2.5, scale=1 / 2.5).rvs(count, random_state=rng),
    "rician": lambda rng, count: stats.ncx2(2, 2 * 3.0).rvs(count, random_state=rng) / (2 * (3.0 + 1)),
    "trace": lambda rng, count: rng.choice([0.5, 1.0, 3.0], count) / 1.5,
}
PARAMETER = {"nakagami": 2.5, "rician": 3.0}


def law(kind):
    efficiency = average_efficiency(GAINS[kind](np.random.default_rng(0), 200_000))
    trace = np.array([0.5, 1.0, 3.0]) if kind == "trace" else None
    return Fading(kind, SNR, efficiency, parameter=PARAMETER.get(kind, 0.0), gains=trace)


def drawn(kind="rayleigh", **changes):
    """A run with a drawn channel, and its slowdowns."""
    run = train(fleet=fleet(fading=[law(kind)] * 4), channel="drawn", evaluate_every=1000, **changes)
    return run, run.ledger["uplink_joules"] / run.ledger["planned_uplink_joules"]


@pytest.mark.parametrize("kind", GAINS)
@pytest.mark.parametrize("blocks", [2, 5])
def test_a_drawn_rate_is_the_mean_over_independent_fades(kind, blocks):
    """Average over drawn rate, against rates made from SciPy's laws of the gain."""
    _, slowdown = drawn(kind, coherence_blocks=blocks, rounds=150, local_steps=1)
    rng = np.random.default_rng(1)
    rates = np.log2(1.0 + SNR * GAINS[kind](rng, 20_000 * blocks)).reshape(-1, blocks).mean(axis=1)
    expected = law(kind).efficiency / rates
    assert slowdown.size == 600
    if kind == "none":
        np.testing.assert_allclose(slowdown, 1.0, rtol=1e-12)
    elif kind == "trace":
        assert set(np.round(slowdown, 9)) == set(np.round(expected, 9))
        assert abs((1 / slowdown).mean() - (1 / expected).mean()) < 5 * (1 / expected).std() / math.sqrt(600)
    else:
        assert stats.ks_2samp(slowdown, expected).pvalue > 1e-4


def test_a_drawn_rate_slows_the_whole_message_and_nothing_else():
    run, slowdown = drawn()
    ledger, device = run.ledger, run.ledger["device"]
    bits = 8.0 * ledger["payload_bytes"]
    planned = COSTS["joules_per_bit"][device] * bits + COSTS["message_joules"][device]
    seconds = COSTS["seconds_per_bit"][device] * bits + COSTS["message_seconds"][device]
    np.testing.assert_allclose(ledger["planned_uplink_joules"], planned)
    np.testing.assert_allclose(ledger["uplink_seconds"], slowdown * seconds)
    average = train(fleet=fleet())
    assert np.array_equal(ledger["compute_joules"], average.ledger["compute_joules"])
    assert np.array_equal(reference.flat(run.model), reference.flat(average.model))
    assert np.unique(slowdown).size == slowdown.size


def test_the_same_seed_draws_the_same_channel_and_another_one_another():
    first, again, other = (drawn(seed=seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.any(first == other)


def test_a_channel_does_not_depend_on_who_takes_part():
    (everyone, slow), (some, slow_some) = drawn(rounds=8), drawn(rounds=8, participation=0.5)
    of = {(row["round"], row["device"]): factor for row, factor in zip(everyone.ledger, slow, strict=True)}
    assert some.ledger.size == 16
    for row, factor in zip(some.ledger, slow_some, strict=True):
        assert factor == pytest.approx(of[row["round"], row["device"]], rel=1e-12)


@pytest.mark.parametrize("blocks", [1, 0, -3, 2.5])
def test_a_message_must_span_two_fades_or_more(blocks):
    with pytest.raises(InvalidInputError, match=f"coherence_blocks.*2.*{blocks}"):
        drawn(coherence_blocks=blocks)
    with pytest.raises(InvalidInputError, match=f"coherence_blocks.*2.*{blocks}"):
        law("rayleigh").draw_slowdown(np.random.default_rng(0), blocks)


def test_a_drawn_channel_needs_the_law_of_every_device():
    with pytest.raises(InvalidInputError, match="channel = 'drawn'"):
        train(channel="drawn")
    with pytest.raises(InvalidInputError, match="channel = 'drawn'"):
        train(channel="drawn", fleet=fleet())
    laws = [law("none")] * 3 + [None]
    with pytest.raises(InvalidInputError, match=r"channel = 'drawn'.*'laptop'"):
        train(channel="drawn", fleet=fleet(fading=laws, names=["a", "b", "c", "laptop"]))


def test_a_fleet_with_fading_is_charged_the_average_rate_unless_told_otherwise():
    run = train(fleet=fleet(fading=[law("rayleigh")] * 4))
    assert np.array_equal(run.ledger["uplink_joules"], run.ledger["planned_uplink_joules"])


@pytest.mark.parametrize("devices", [1, 3, 5])
def test_a_fleet_of_another_size_is_refused(devices):
    costs = fj.Fleet(joules_per_bit=np.ones(devices), joules_per_step=1.0)
    with pytest.raises(InvalidInputError, match=f"fleet.*4.*{devices}"):
        train(fleet=costs)
