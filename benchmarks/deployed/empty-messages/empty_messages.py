"""Rounds of empty messages and empty replies, with Flower's own way to send and receive."""

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from round_marks import mark_round

client = ClientApp()
server = ServerApp()


@client.query()
def query(message: Message, context: Context) -> Message:
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    marks = context.run_config["marks"]
    mark_round(marks, 0)
    for number in range(1, context.run_config["rounds"] + 1):
        grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])
        mark_round(marks, number)
