"""What a node's worker holds."""

from deployed_task import new_model, samples


def node(config):
    return new_model(config["model"]), *samples(config["data"])
