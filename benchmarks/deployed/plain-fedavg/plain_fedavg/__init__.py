"""FedAvg on Flower as its users write it."""
