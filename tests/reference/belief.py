"""The posterior of a rounds law by brute force: the prior times the likelihood on a grid of ln c, a, q and ln tau."""

import numpy as np

from fewjoules.tuning.belief import DEVIATIONS, LEAST_Q, PRIOR_A, PRIOR_C, PRIOR_Q

PRIOR_MEANS = np.array([np.log(PRIOR_C), PRIOR_A, PRIOR_Q])


def posterior_moments(observations, *, points=25, tau_points=481):
    """Mean and standard deviation of (ln tau, ln c, a, q) after (H, sparsities of all devices, steps, deviation)."""
    scores = np.linspace(-4.5, 4.5, points)
    log_c, a, q = (mean + spread * scores for mean, spread in zip(PRIOR_MEANS, DEVIATIONS, strict=True))
    reach = 5.0 + 6.0 * max(one[3] for one in observations)
    centre = np.log(np.mean([one[2] for one in observations]))
    log_tau = np.linspace(centre - reach, centre + reach, tau_points)
    total, first, second = 0.0, np.zeros(4), np.zeros(4)
    for i, one_log_c in enumerate(log_c):
        for j, one_a in enumerate(a):
            for k, one_q in enumerate(q):
                exponent = max(one_q, LEAST_Q)
                log_weight = -0.5 * (scores[i] ** 2 + scores[j] ** 2 + scores[k] ** 2) + np.zeros(log_tau.size)
                for local_steps, sparsity, steps, deviation in observations:
                    mean_power = np.mean([delta**exponent for delta in sparsity])
                    delay = 1.0 + np.exp(one_log_c) * local_steps**one_a * mean_power
                    log_weight += -0.5 * ((np.log(steps) - log_tau - np.log(delay)) / deviation) ** 2
                weight = np.exp(log_weight)
                constants = (log_tau, one_log_c, one_a, exponent)
                total += weight.sum()
                first += [np.sum(weight * constant) for constant in constants]
                second += [np.sum(weight * np.square(constant)) for constant in constants]
    mean = first / total
    return mean, np.sqrt(second / total - mean**2)
