"""Meters are found in the folders where the kernel has them, and whatever cannot be read is named with the reason."""

import types
from pathlib import Path

import pytest

from fewjoules.errors import InvalidInputError, MeterError
from fewjoules.metering import battery, hwmon, nvml, rapl, zeus
from fewjoules.metering.survey import open_all, open_meter, survey
from tests.metering.trees import add_battery, add_chip, add_zone


def opened(finding):
    assert finding.problem is None, finding
    return finding.open()


# --- RAPL


def test_rapl_counts_packages_and_nothing_within_or_around_them(tmp_path):
    zones = [add_zone(tmp_path, f"intel-rapl:{n}", f"package-{n}", 1_000_000 * n) for n in range(2)]
    parts = [add_zone(tmp_path, "intel-rapl:0:0", "core", 5), add_zone(tmp_path, "intel-rapl:2", "psys", 7)]
    meter = opened(rapl.find(tmp_path))
    for folder, rise in zip((*zones, *parts), (2_000_000, 3_500_000, 99_000_000, 99_000_000), strict=True):
        file = folder / "energy_uj"
        file.write_text(f"{int(file.read_text()) + rise}\n")
    assert meter.joules() == pytest.approx(5.5)
    assert meter.described == "RAPL of package-0, package-1"
    meter.close()


def test_rapl_wraps_around_at_the_range_that_its_folder_tells(tmp_path):
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0", 65_000_000, range_uj=65_532_610)
    meter = opened(rapl.find(tmp_path))
    (zone / "energy_uj").write_text("467390\n")
    assert meter.joules() == pytest.approx(1.0)
    meter.close()


def test_a_counter_without_permission_is_told_with_the_command_that_grants_it(tmp_path, monkeypatch):
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    forbid(monkeypatch, "energy_uj")
    problem = rapl.find(tmp_path).problem
    file = tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj"
    assert problem == f"this user may not read it; allow it with: sudo chmod o+r {file}"
    assert zone.exists()


def forbid(monkeypatch, name):
    """Make files of this name unreadable, also for the superuser."""
    really = Path.open

    def guarded(self, *arguments, **named):
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return really(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", guarded)


def test_a_machine_without_rapl_is_told_so(tmp_path):
    assert "no powercap driver" in rapl.find(tmp_path).problem
    (tmp_path / "class" / "powercap").mkdir(parents=True)
    assert rapl.find(tmp_path).problem == "no domain of a processor package is there"


def test_a_counter_that_is_no_number_is_refused_with_its_file(tmp_path):
    zone = add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (zone / "energy_uj").write_text("none\n")
    assert "energy_uj: must hold a whole number" in rapl.find(tmp_path).problem


# --- rails


def ina3221(**labels):
    values = {}
    for number, (label, (millivolts, milliamperes)) in enumerate(labels.items(), start=1):
        values |= {f"in{number}_label": label, f"in{number}_input": millivolts, f"curr{number}_input": milliamperes}
        values[f"in{number + 3}_input"] = 40  # microvolts over the shunt
    return values


def watts_of(finding):
    meter = opened(finding)
    try:
        return meter._read_watts(), meter.described
    finally:
        meter.close()


def test_a_rail_that_feeds_the_whole_module_is_taken_alone(tmp_path):
    rails = ina3221(VDD_IN=(5000, 1200), VDD_CPU_GPU_CV=(5000, 400), VDD_SOC=(5000, 300))
    add_chip(tmp_path, 1, "ina3221", **rails, in7_label="sum of shunt voltages", in7_input=120, curr4_input=1900)
    add_chip(tmp_path, 2, "nvme", temp1_input=30000)
    assert watts_of(hwmon.find(tmp_path)) == (pytest.approx(6.0), "rail VDD_IN")


def test_without_such_a_rail_all_are_summed_and_named(tmp_path):
    add_chip(tmp_path, 1, "ina3221", **ina3221(VDD_GPU_SOC=(12000, 500), VDD_CPU_CV=(12000, 250), NC=(12000, 999)))
    add_chip(tmp_path, 2, "ina226", in0_input=1, in1_input=5000, curr1_input=100, power1_input=500_000)
    watts, described = watts_of(hwmon.find(tmp_path))
    assert watts == pytest.approx(6.0 + 3.0 + 0.5)
    assert described == "rails VDD_GPU_SOC, VDD_CPU_CV, hwmon2/power1_input"


def test_other_sensors_are_no_meter(tmp_path):
    add_chip(tmp_path, 1, "nvme", temp1_input=30000)
    assert hwmon.find(tmp_path).problem == "no power sensor (INA3221, INA226 or the like) is there"


# --- batteries


@pytest.mark.parametrize(
    ("files", "watts"),
    [
        ({"power_now": 7_250_000}, 7.25),
        ({"current_now": -500_000, "voltage_now": 12_000_000}, 6.0),
    ],
)
def test_a_battery_tells_its_power(tmp_path, files, watts):
    add_battery(tmp_path, **files)
    assert watts_of(battery.find(tmp_path))[0] == pytest.approx(watts)


@pytest.mark.parametrize(
    ("files", "drawn", "joules"),
    [
        ({"energy_now": 50_000_000}, {"energy_now": 49_990_000}, 36.0),
        ({"charge_now": 4_000_000, "voltage_now": 10_000_000}, {"charge_now": 3_999_000}, 36.0),
    ],
)
def test_a_battery_without_a_power_tells_its_energy_or_charge(tmp_path, files, drawn, joules):
    folder = add_battery(tmp_path, **files)
    meter = opened(battery.find(tmp_path))
    for name, value in drawn.items():
        (folder / name).write_text(f"{value}\n")
    assert meter.joules() == pytest.approx(joules)
    meter.close()


def test_a_battery_that_is_charged_is_no_meter_from_the_start_or_later(tmp_path):
    folder = add_battery(tmp_path, power_now=1_000_000)
    meter = opened(battery.find(tmp_path))
    (folder / "status").write_text("Charging\n")
    with pytest.raises(MeterError, match=r"its status must be Discharging, got Charging: unplug the charger"):
        meter.joules()
    meter.close()
    assert battery.find(tmp_path).problem == "its status must be Discharging, got Charging: unplug the charger"


def test_the_battery_of_a_mouse_is_not_that_of_the_machine(tmp_path):
    add_battery(tmp_path, "hidpp_battery_0", scope="Device", power_now=1)
    assert battery.find(tmp_path).problem == "no battery of this machine is there"


# --- NVML and Zeus, replayed


class Nvml(types.SimpleNamespace):
    """Stands for pynvml: one GPU, whose counter replays a record in millijoules."""

    class NVMLError(Exception):
        pass

    def __init__(self, record):
        self.record = list(record)

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-1":
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return b"Model X"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if not self.record:
            raise self.NVMLError("GPU is lost")
        return self.record.pop(0) if len(self.record) > 1 else self.record[0]


def test_nvml_counts_millijoules_of_the_gpu_that_trains():
    meter = opened(nvml.find("GPU-1", Nvml([500, 1_000, 3_500])))
    assert (meter.joules(), meter.described) == (pytest.approx(2.5), "NVML of Model X")
    meter.close()


def test_a_gpu_that_the_driver_does_not_know_is_told():
    assert nvml.find("GPU-2", Nvml([1])).problem == "the driver refuses (Not Found)"
    assert nvml.find(None).problem == "it measures a GPU, and the processor was chosen to train"


def test_a_gpu_that_is_lost_stops_the_measurement():
    library = Nvml([1, 2])
    meter = opened(nvml.find("GPU-1", library))
    library.record = []
    with pytest.raises(
        MeterError, match=r"NVML of Model X: the energy counter cannot be read any more \(GPU is lost\)"
    ):
        meter.joules()
    meter.close()


class Zeus(types.SimpleNamespace):
    """Stands for zeus.monitor: each window costs one joule more than the last, on two GPUs."""

    windows = 0

    def ZeusMonitor(self):  # noqa: N802
        return self

    def begin_window(self, name, sync_execution):
        self.windows += 1

    def end_window(self, name, sync_execution):
        return types.SimpleNamespace(gpu_energy={0: self.windows, 1: 10.0}, cpu_energy={0: 0.25})


def test_zeus_adds_up_its_windows():
    meter = opened(zeus.find("GPU-1", Zeus()))
    assert [meter.joules(), meter.joules()] == [11.0, 23.0]
    meter = opened(zeus.find(None, Zeus()))
    assert [meter.joules(), meter.joules()] == [0.25, 0.5]


# --- all of them


def test_the_survey_looks_for_every_meter_and_says_where_and_why(tmp_path):
    found = {one.kind: one for one in survey(None, tmp_path)}
    assert set(found) == {"nvml", "rapl", "hwmon", "battery"}
    assert all(one.problem and one.where for one in found.values())
    assert str(tmp_path / "class" / "powercap") in str(found["rapl"])


def test_a_gpu_is_not_measured_by_the_counters_of_the_processor(tmp_path):
    add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter, found = open_meter("auto", "GPU-1", tmp_path)
    assert meter is None
    assert [one.kind for one in found] == ["nvml", "hwmon", "battery"]
    (meter,) = open_all("GPU-1", tmp_path)  # beside a GPU, the processor spends joules as well
    meter.close()
    assert meter.kind == "rapl"


def test_auto_takes_the_nearest_meter(tmp_path):
    add_battery(tmp_path, power_now=1_000_000)
    meter, _ = open_meter("auto", None, tmp_path)
    meter.close()
    assert meter.kind == "battery"
    add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter, _ = open_meter("auto", None, tmp_path)
    meter.close()
    assert meter.kind == "rapl"


def test_a_meter_asked_for_by_name_is_that_one_or_refused(tmp_path):
    add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    add_battery(tmp_path, power_now=1_000_000)
    meter, _ = open_meter("battery", None, tmp_path)
    meter.close()
    assert meter.kind == "battery"
    with pytest.raises(InvalidInputError, match=r"--meter hwmon cannot be read: .*hwmon: there is no such folder"):
        open_meter("hwmon", None, tmp_path)
    with pytest.raises(InvalidInputError, match=r"--meter must be auto or one of nvml, rapl, .*, got 'sun'"):
        open_meter("sun", None, tmp_path)


def test_all_meters_are_opened_or_none_is_there(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no meter can be read: nvml: .*; rapl: .*; hwmon: .*; battery: "):
        open_all(None, tmp_path)
    add_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    add_battery(tmp_path, power_now=1_000_000)
    meters = open_all(None, tmp_path)
    assert [meter.kind for meter in meters] == ["rapl", "battery"]
    for meter in meters:
        meter.close()
