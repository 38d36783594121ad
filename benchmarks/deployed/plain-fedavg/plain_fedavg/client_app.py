"""The ClientApp: load the weights and the data, take the local steps, return the weights."""

import torch
from deployed_task import new_model, samples
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    model = new_model(context.node_config["model"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, targets = samples(context.node_config["data"])
    config = message.content["config"]
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning-rate"])
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(config["local-steps"]):
        batch = torch.randint(len(targets), (config["batch-size"],))
        optimizer.zero_grad()
        loss = criterion(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(targets)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
