"""A first scenario file: valid at once, with a comment on every value that says what it is and where it comes from."""

import json
import textwrap
from collections import Counter

from fewjoules.datasets.shapes import CLASSES, SHAPES, TEXTS, USUAL_CONTEXT
from fewjoules.engine.models.architectures import ARCHITECTURES, Images, Shape, Text
from fewjoules.engine.models.architectures.base import FLOPS_PER_MULTIPLY_ADD
from fewjoules.own_code import is_own
from fewjoules.profiles import MARKS
from fewjoules.scenario.start.answers import Devices, Start
from fewjoules.scenario.start.usual import MAX_ROLES, WHERE_FROM, batch_of, law_of, optimiser_of

USUAL_MAX_SPARSITY = 1000.0
_OWN_MAX_SPARSITY = 100.0
_OWN_FLOPS = 1e6
_COLUMN, _WIDTH = 40, 120
_SIZES = {"width": "features of a token", "depth": "layers", "heads": "heads of attention, which share the width"}

Line = tuple[str, str]  # a line of the file and the comment on it


def start_text(start: Start, file: str) -> str:
    """Return the text of the scenario ``file``."""
    head = textwrap.wrap(f"{file}: {describe(start)}. Written by fewjoules init.", _WIDTH - 2) + textwrap.wrap(
        "Change any value; fewjoules plan shows what a change does to the plan. ASSUMED marks values that nobody has "
        "measured for your devices and your task: they are places to start from. Lines such as '# round_seconds = ...' "
        "are options: remove the # in front to use them. docs/scenario.md explains every key.",
        _WIDTH - 2,
    )
    tables = [_model(start), _rounds(start), _limits(start), _training(start)]
    tables += [_device(group, number, start) for number, group in enumerate(start.devices)]
    parts = [[*(f"# {line}" for line in head), *_said("version = 1", "of the file format")]]
    parts += [[line for code, comment in table for line in _said(code, comment)] for table in tables]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _said(code: str, comment: str) -> list[str]:
    """Return a line of the file with its comment beside it, on as many lines as it takes."""
    first, *rest = textwrap.wrap(comment, _WIDTH - _COLUMN - 2, break_on_hyphens=False)
    return [f"{code:<{_COLUMN - 1}} # {first}", *(f"{'':<{_COLUMN}}# {line}" for line in rest)]


def describe(start: Start) -> str:
    """Return who trains what to which target, in a few words."""
    groups = " and ".join(f"{group.count:,} x {group.profile.name}" for group in start.devices[:4])
    groups += " and others" if len(start.devices) > 4 else ""
    if start.target is None:
        return f"{groups} train a model of {start.model.parameters:,} parameters"
    metric, value = start.target
    aim = f"{100 * value:.6g} % accuracy" if metric == "accuracy" else f"a {metric} of {value:g}"
    return f"{groups} train {start.model.architecture} on {start.data} to {aim}"


def parameters_of(start: Start) -> int | None:
    """Return the number of parameters of the model; None where a network or data of the user's own decide it."""
    name, data = start.model.architecture, start.data
    if name is None or name not in ARCHITECTURES or data is None or is_own(data):
        return start.model.parameters
    shape: Shape = Text(USUAL_CONTEXT, TEXTS[data]) if data in TEXTS else Images(*SHAPES[data], CLASSES)
    return ARCHITECTURES[name].parameters(shape, **ARCHITECTURES[name].all_sizes({}))


def _max_sparsity(start: Start) -> float:
    """Return the largest sparsity that plans may choose; unless given, one that suits the model."""
    if start.max_sparsity is not None:
        return start.max_sparsity
    parameters = parameters_of(start)
    return _OWN_MAX_SPARSITY if parameters is None else min(USUAL_MAX_SPARSITY, float(parameters))


def _model(start: Start) -> list[Line]:
    lines = [("[model]", "the network that all devices train together")]
    name, parameters = start.model.architecture, parameters_of(start)
    if name is None:
        assert parameters is not None
        flops = float(FLOPS_PER_MULTIPLY_ADD * parameters)
        return [
            *lines,
            (f"parameters = {parameters}", "enough to plan with; training needs an architecture instead of this line"),
            (
                f"flops_per_sample = {flops!r}",
                "ASSUMED: operations of one sample in a training step, six for each parameter, as of linear layers; "
                "convolutions use each parameter more often",
            ),
        ]
    lines.append((f"architecture = {_quoted(name)}", _about_network(start, name, parameters)))
    if is_own(name) and is_own(start.data or ""):
        operations = "operations of one sample in a training step: six for each multiply-add of your network"
        lines.append((f"flops_per_sample = {_OWN_FLOPS!r}", f"ASSUMED, and to be replaced: {operations}"))
    if name in ARCHITECTURES:
        lines += [(f"{size} = {value}", _SIZES[size]) for size, value in ARCHITECTURES[name].all_sizes({}).items()]
    if start.data in TEXTS:
        lines.append((f"context = {USUAL_CONTEXT}", "characters that a prediction may look back on"))
    return lines


def _about_network(start: Start, name: str, parameters: int | None) -> str:
    if not is_own(name):
        counted = "" if parameters is None else f"{parameters:,} parameters; "
        return f"{counted}also {', '.join(one for one in ARCHITECTURES if one != name)}, or a network of your own"
    module, _, function = name.partition(":")
    arguments = "context, classes" if start.data in TEXTS else "channels, height, width, classes"
    signature = f"{function}({'' if is_own(start.data or '') else arguments})"
    return f"your function {signature} in {module.replace('.', '/')}.py beside this file; it returns a torch.nn.Module"


def _rounds(start: Start) -> list[Line]:
    law = law_of(start.model.architecture, start.data)
    better = "fewjoules calibrate rounds fits a law to pilot runs of yours."
    if start.model.architecture is not None:
        better = "fewjoules tune measures a law of your task for [recipe.rounds] and, without this table, one for it."
    return [
        (
            "[rounds]",
            "how many rounds training takes to the target: tau / H * (1 + c * H^a * mean(delta^q)), with H local steps "
            "a round and the sparsities delta of the devices",
        ),
        (
            'kind = "power-law"',
            f"ROUGH and ASSUMED: the four numbers below are {law.source}. They depend on data, target, step size and "
            f"number of devices, so the joules of a plan may be far off. {better}",
        ),
        (f"tau = {law.tau!r}", "local steps to the target where nothing delays them"),
        (f"c = {law.c!r}", "how much sparse updates and rare synchronisation delay training"),
        (f"a = {law.a!r}", "how fast that delay grows with H"),
        (f"q = {law.q!r}", "how fast it grows with the sparsity"),
    ]


def _limits(start: Start) -> list[Line]:
    return [
        ("[limits]", "what a plan may choose from"),
        (
            f"sparsity = {{min = 1.0, max = {_max_sparsity(start)!r}}}",
            "delta: of delta entries of its update a device sends one, the largest; 1 sends all",
        ),
        (
            f"local_steps = {{min = 1, max = {start.max_local_steps}}}",
            "H: local steps between two synchronisations; fewjoules plan says if the best H is at this limit",
        ),
        (
            _optional("round_seconds", start.round_seconds, 30.0),
            "deadline: plans in which a device takes longer for a round are left out",
        ),
    ]


def _training(start: Start) -> list[Line]:
    batch = (f"batch_size = {batch_of(start.data)}", "samples of a local step. ASSUMED")
    if start.model.architecture is None or start.target is None:
        return [("[training]", "of this table a plan needs the batch only, to count operations"), batch]
    (metric, value), data = start.target, str(start.data)
    lines = [
        ("[training]", "how train, tune and compare train; plans count its batch_size"),
        (f"data = {_quoted(data)}", WHERE_FROM.get(data, "your function, in a module beside this file")),
        *_partition(start),
    ]
    for key, chosen in optimiser_of(start.model.architecture).items():
        about = {"inner": "optimiser on the devices; without this line plain SGD", "learning_rate": "step size"}[key]
        shown = _quoted(chosen) if isinstance(chosen, str) else repr(chosen)
        lines.append((f"{key} = {shown}", f"{about}. ASSUMED; fewjoules tune finds a better one"))
    return [
        *lines,
        batch,
        (f"target_{metric} = {value!r}", "of the test set; training stops here"),
        (f"seed = {start.seed}", "of everything random: the same seed gives the same run"),
    ]


def _partition(start: Start) -> list[Line]:
    if is_own(start.data or ""):
        return []
    if start.data in TEXTS and start.device_count <= MAX_ROLES:
        return [('partition = "roles"', f"each device has the words of one role, of {MAX_ROLES}")]
    skewed = ' Unequal shares: "dirichlet" with dirichlet_concentration = 0.5' if start.data not in TEXTS else ""
    return [('partition = "iid"', f"every device has the same mix of samples.{skewed}")]


def _device(group: Devices, number: int, start: Start) -> list[Line]:
    profile = group.profile
    earlier = sum(other.profile.name == profile.name for other in start.devices[:number])
    name = profile.name.removesuffix(".toml") + (f"-{earlier + 1}" if earlier else "")
    marks = Counter(source.mark for source in profile.sources.values())
    known = ", ".join(f"{marks[mark]} {mark}" for mark in MARKS if marks[mark])
    description = f"{profile.description}. " if profile.description else ""
    measured = [
        ("# joules_per_step = 0.02", "a cost that stands here wins over the profile. These two are measured by"),
        ("# seconds_per_step = 0.01", "fewjoules measure step, on such a device"),
        ("# joules_per_bit = 4e-07", "of sending a bit, by a meter or by the gauge of the battery"),
    ]
    return [
        ("[[device]]", "one table for each kind of device"),
        (f"name = {_quoted(name)}", "used in tables and messages"),
        (f"count = {group.count}", "equal devices of this kind"),
        (
            f"profile = {_quoted(profile.name)}",
            f"{description}Costs: {known}; sources by: fewjoules profiles {profile.name}",
        ),
        *(measured if number == 0 else []),
        (
            _optional("battery_joules", start.battery_joules, 500.0),
            "what each of these devices may spend on the whole training",
        ),
    ]


def _optional(key: str, value: float | None, example: float) -> str:
    """Return a line with the value, or one that is commented out."""
    return f"# {key} = {example!r}" if value is None else f"{key} = {value!r}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
