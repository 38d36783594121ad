"""The pure functions of the algorithm as the plainest possible backend, one client and one sample list at a time."""

import copy
from dataclasses import replace

import numpy as np
import torch

from fewjoules.engine.algorithm.client import Steps, client_round, new_client, settled
from fewjoules.engine.algorithm.inner import Moments, step_in_place
from fewjoules.engine.algorithm.round import RoundResult, Uploads
from fewjoules.engine.algorithm.rule import InnerRule
from fewjoules.engine.algorithm.sampling import draw_batches
from fewjoules.engine.algorithm.server import mean_buffers, mean_update
from fewjoules.engine.algorithm.streams import stream_key
from fewjoules.engine.simulator.failures import delivered_uploads


def mean_cross_entropy(net, inputs, targets):
    return torch.nn.functional.cross_entropy(net(inputs), targets)


class PlainBackend:
    """Runs ``client_round`` for one participant after the other."""

    sends_changes = False
    keeps_clients = True

    def __init__(self, module, clients, options, loss=mean_cross_entropy):
        self.module, self.data, self.options, self.loss = module, clients, options, loss
        self.states = {}

    def prepare(self, plan):
        pass

    def run(self, state, plan, meanwhile):
        meanwhile()
        uploads, kept = [], []
        for row in range(plan.participants.size):
            order = plan.order(row)
            before = self.states.get(order.client) or new_client(order, state.weights.numel())

            def train(client_state, order, state=state):
                return self.local_steps(state, client_state, order)

            upload, after = client_round(train, before, order)
            uploads.append(upload)
            kept.append(after)
        delivered = delivered_uploads(plan)
        for row, after in enumerate(kept):
            known = plan.number if delivered[row] else int(plan.accepted[row])
            self.states[int(plan.participants[row])] = self.as_kept(settled(after, known))
        buffers = torch.from_numpy(np.stack([one.buffers for one in uploads]))
        return RoundResult(
            mean_update=torch.from_numpy(mean_update([one.update for one in uploads], delivered, plan.shares)),
            buffers=mean_buffers(buffers, state.buffers, delivered, plan.shares),
            delivered=delivered,
            uploads=lambda: Uploads(
                entries=np.array([one.update.count for one in uploads]),
                payload_bytes=np.array([one.payload_bytes for one in uploads]),
                written=np.zeros(len(uploads), dtype=bool),
                losses=np.stack([one.losses for one in uploads], axis=1),
                correct=np.stack([one.correct for one in uploads], axis=1),
            ),
        )

    def as_kept(self, state):
        """What is stored of a state: in bfloat16, the upper half of each float32, rounded to nearest, ties to even."""
        if self.options.kept_values == "float32":
            return state
        names = [name for name in ("residual", "velocity", "squares") if getattr(state, name) is not None]
        return replace(state, **{name: upper_halves(getattr(state, name)) for name in names})

    def local_steps(self, state, client_state, order):
        """H steps of one client by autograd on a copy of the module."""
        net = copy.deepcopy(self.module).train()
        trained = [p for p in net.parameters() if p.requires_grad]
        averaged = [b for b in net.buffers() if b.dtype == torch.float32]
        load(trained, state.weights)
        load(averaged, state.buffers)
        rule = InnerRule.of(self.options)
        moments = Moments(steps=client_state.steps if order.rule.kept_moments else 0)
        for name in rule.moments:
            found = [torch.zeros_like(p) for p in trained]
            if getattr(client_state, name) is not None:
                load(found, torch.from_numpy(getattr(client_state, name)))
            setattr(moments, name, found)
        inputs, targets = self.data[order.client]
        losses, correct = [], []
        for step, rate in enumerate(order.rates):
            batch = self.batch(order, step, len(targets))
            loss = self.loss(net, rows(inputs, batch), rows(targets, batch))
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                step_in_place(trained, list(gradients), rate, rule, moments, stacked=False)
            losses.append(float(loss.detach()))
            correct.append(0.0)
        return Steps(
            change=(state.weights - flat(trained)).numpy(),
            buffers=flat(averaged).numpy(),
            velocity=flat(moments.velocity).numpy() if client_state.velocity is not None else None,
            squares=flat(moments.squares).numpy() if client_state.squares is not None else None,
            losses=np.array(losses),
            correct=np.array(correct),
        )

    def batch(self, order, step, size):
        key = stream_key(order.seed, "batches")
        wanted = np.array([[order.batch_sizes[step]]])
        numbers, _ = draw_batches(key, np.array([order.client]), np.array([size]), order.first_step + step, wanted)
        return torch.from_numpy(numbers[0, 0])

    def client_state(self, client):
        return self.states.get(client)


def upper_halves(vector):
    bits = vector.view(np.uint32).astype(np.uint64)
    odd = (bits >> np.uint64(16)) & np.uint64(1)
    halves = (bits + np.uint64(0x7FFF) + odd) >> np.uint64(16) << np.uint64(16)
    return halves.astype(np.uint32).view(np.float32)


def rows(tree, numbers):
    """Some rows of an array, or of each array of a dict, as tensors."""
    if isinstance(tree, dict):
        return {name: rows(array, numbers) for name, array in tree.items()}
    return torch.from_numpy(tree)[numbers]


def load(tensors, vector):
    with torch.no_grad():
        for tensor, part in zip(tensors, torch.split(vector, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors]) if tensors else torch.zeros(0)
