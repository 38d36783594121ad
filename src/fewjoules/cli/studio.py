"""``fewjoules studio``: plan fleets and watch runs in a browser."""

import asyncio
import threading
import webbrowser
from typing import Annotated

import typer

from fewjoules.cli.console import plain_errors
from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra


def studio(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Folder of scenario files and runs; nothing outside it is opened. Left out: this one.",
            show_default=False,
        ),
    ] = ".",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1. Left out: a free one.", show_default=False)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, but open no browser.")] = False,
) -> None:
    """Plan fleets and watch runs in a browser.

    The page is served to this machine alone. The address that is printed holds a token; whoever has it can see what
    lies in DIR. Ctrl-C ends the studio; runs that are training elsewhere go on.

    Examples:

    \b
      fewjoules studio                    the scenario files and runs in this folder
      fewjoules studio runs --port 8000   those in another one, at a port of your choice
    """
    with plain_errors():
        if not 0 <= port <= 65_535:
            raise InvalidInputError(f"--port must be a whole number from 0 to 65535, got {port}")
        require_extra("studio", "fewjoules studio")
        from fewjoules.studio.access import Access, Workspace
        from fewjoules.studio.server import listen, serve

        workspace = Workspace.of(folder)

        def announce(access: Access) -> None:
            typer.echo(f"FewJoules studio of {workspace.root}\n  {access.address}\nCtrl-C ends it.")
            if not no_browser:
                address = access.address_for_once()
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        asyncio.run(serve(workspace, listen(port), announce))
