import pytest

from tests.integrations.flower.counted import CountedRun


@pytest.fixture(name="counted")
def counted_runs(tmp_path, monkeypatch):
    """Return a function that makes counted runs, one after the other, each in a folder of its own."""
    made = []

    def counted(**given):
        monkeypatch.undo()
        made.append(CountedRun(tmp_path / str(len(made)), monkeypatch, **given))
        return made[-1]

    return counted
