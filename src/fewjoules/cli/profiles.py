"""``fewjoules profiles``: what kinds of devices cost, and where the numbers come from."""

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer

from fewjoules.cli.console import console, plain_errors
from fewjoules.profiles import profile_names, shipped_profile

FORMAT_VERSION = 1


def profiles(
    name: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="A profile, or a file of your own whose name ends in .toml. Left out: list them all."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the profiles as JSON and nothing else.")] = False,
) -> None:
    """List device profiles, or show one with its sources.

    A profile holds the costs of a kind of device. A [[device]] of a scenario takes them by profile = "lte-phone".
    Each number is marked: measured by its source, fitted to measurements or derived from them, or assumed.

    Examples:

    \b
      fewjoules profiles                    the names and the main figures
      fewjoules profiles lte-phone          every number and its source
      fewjoules profiles my-phone.toml      a profile of your own, checked
      fewjoules profiles --json             all of them, for scripts
    """
    with plain_errors():
        if name is None:
            chosen = [shipped_profile(one) for one in profile_names()]
        else:
            from fewjoules.scenario.folder import ScenarioFolder
            from fewjoules.scenario.profiles import load_profile

            chosen = [load_profile(name, ScenarioFolder(Path(), allow_outside=True))]
        if json:
            typer.echo(json_format.dumps({"version": FORMAT_VERSION, "profiles": list(map(asdict, chosen))}, indent=2))
            return
        from fewjoules.reports.profiles import profile_list, profile_report

        console().print(profile_list(chosen) if name is None else profile_report(chosen[0]))
