"""pfl-research's way, written plainly: users one after another on one model, statistics added up, no state of users.

A cohort of user numbers is drawn, each user's data are made by a function, the model is reset to the central weights,
trained and subtracted, and the sum of the changes is the central step.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rivals.crowd import BATCH, LEARNING_RATE, LOCAL_STEPS, SAMPLES, first_sample, new_model, pool


def new_rounds(users: int, cohort: int) -> Callable[[int], None]:
    """Return a function that trains so many rounds of ``cohort`` among ``users``."""
    inputs, labels = pool()
    model, rng = new_model(), np.random.default_rng(0)

    def data_of(user: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = first_sample(user)
        return inputs[start : start + SAMPLES], labels[start : start + SAMPLES]

    def train(user: int) -> None:
        own_inputs, own_labels = data_of(user)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for _ in range(LOCAL_STEPS):
            batch = torch.randperm(SAMPLES)[:BATCH]
            optimizer.zero_grad()
            functional.cross_entropy(model(own_inputs[batch]), own_labels[batch]).backward()
            optimizer.step()

    def run(rounds: int) -> None:
        for _ in range(rounds):
            central = parameters_to_vector(model.parameters()).detach().clone()
            total = torch.zeros_like(central)
            for user in rng.choice(users, cohort, replace=False).tolist():
                vector_to_parameters(central.clone(), model.parameters())
                train(user)
                total += central - parameters_to_vector(model.parameters()).detach()
            vector_to_parameters(central - total / cohort, model.parameters())

    return run
