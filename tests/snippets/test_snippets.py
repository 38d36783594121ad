"""The mechanism that runs the blocks of pages notices what is wrong."""

import contextlib
from pathlib import Path

import pytest

from tests.snippets import rounding
from tests.snippets.blocks import blocks_of
from tests.snippets.commands import mistake_in
from tests.snippets.output import difference
from tests.snippets.page import PageError, run_page
from tests.snippets.update import update


def page(folder: Path, text: str) -> Path:
    file = folder / "page.md"
    file.write_text(text.replace("'''", "```"), encoding="utf-8")
    return file


def test_a_page_runs_in_order_in_one_folder(tmp_path):
    text = """
<!-- file: part.py -->
'''python
NUMBER = 4
'''

<!-- setup
from part import NUMBER
-->
'''python
print("the number is", NUMBER)
import contextlib
from pathlib import Path

Path("out.txt").write_text("written by Python")
'''

'''text
the   number is 4
'''

'''sh
cat out.txt
python -c "import part; print(); print(part.NUMBER)"
'''

'''text
written by Python
4
'''
"""
    assert run_page(page(tmp_path, text), tmp_path) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'''sh\necho two\n'''\n\n'''text\none\n'''\n", r"page\.md:5: the page shows 'one'; printed was:\ntwo"),
        ("'''sh\necho one; echo two\n'''\n'''text\none\n'''\n", "more was printed than the page shows"),
        ("'''sh\nfalse\n'''\n", r"page\.md:1: exit code 1"),
        ("'''python\n1 / 0\n'''\n", r"page\.md:1: ZeroDivisionError"),
        ("'''toml\n[limits]\nsparsity = {min = 0.5, max = 2.0}\nlocal_steps = [1]\n'''\n", r"page\.md:1: .*sparsity"),
        ("'''toml\n[limits\n'''\n", r"page\.md:1: "),
        ("'''sh\necho\n", "never closed"),
    ],
)
def test_a_page_that_is_wrong_is_refused(tmp_path, text, said):
    with pytest.raises(AssertionError, match=said):
        run_page(page(tmp_path, text), tmp_path)


def test_blocks_of_other_targets_wait_for_them(tmp_path):
    text = (
        "<!-- run by make test-gpu: needs a GPU -->\n'''sh\nfalse\n'''\n\n<!-- not run: fails -->\n'''sh\nfalse\n'''\n"
    )
    file = page(tmp_path, text)
    assert run_page(file, tmp_path) == 0
    with pytest.raises(PageError, match="exit code 1"):
        run_page(file, tmp_path, targets=["test-gpu"])


def test_an_output_belongs_to_the_block_that_it_follows(tmp_path):
    text = "'''sh\necho one\n'''\n\nSomething else:\n\n'''text\ntwo\n'''\n"
    file = page(tmp_path, text)
    assert [block.follows for block in blocks_of(file)] == [False, False]
    assert run_page(file, tmp_path) == 1


@pytest.mark.parametrize(
    ("shown", "printed", "tolerance", "same"),
    [
        ("a  b", "a b\n\n", 0.0, True),
        ("a b", "a c", 0.0, False),
        ("took ... s", "took 3.2 s", 0.0, True),
        ("first\n...\nlast", "first\n2\n3\nlast", 0.0, True),
        ("first\n...\nlast", "first\n2\n3", 0.0, False),
        ("5.31 J (4 rounds).", "5.32 J (4 rounds).", 0.0, False),
        ("5.31 J (4 rounds).", "5.32 J (4 rounds).", 0.01, True),
        ("5.31 J (4 rounds).", "5.32 J (5 rounds).", 0.01, False),
        ("13,706 entries", "13,707 entries", 0.01, True),
        ("run1", "run2", 0.9, False),
        ("6e-11", "7e-11", 0.0, True),
        ("6e-8", "7e-8", 0.0, False),
        ("less than 6.522961613 J", "less than 6.522961605 J", 0.0, True),
        ("less than 6.522961613 J", "less than 6.522961593 J", 0.0, False),
        ("6,522,961,613 bits", "6,522,961,614 bits", 0.0, False),
        ("a.b*", "a.b*", 0.0, True),
        ("a.b*", "axbb", 0.0, False),
    ],
)
def test_outputs_are_compared_by_words_and_numbers(shown, printed, tolerance, same):
    assert (difference(shown, printed, tolerance) is None) == same


def test_an_update_writes_what_was_printed_and_nothing_else(tmp_path):
    file = page(tmp_path, "# Page\n\n'''sh\necho new; echo line\n'''\n\n'''text\nold\n'''\n\nthe end\n")
    assert update(file) == 1
    assert update(file) == 0
    assert file.read_text() == "# Page\n\n```sh\necho new; echo line\n```\n\n```text\nnew\nline\n```\n\nthe end\n"


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("fewjoules plan fleet.toml --scheme all  # every scheme", None),
        ("fewjoules plan --sheme all", "there is no option --sheme"),
        ("fewjoules plann", "there is no command plann"),
        ("fewjoules measure step --seconds-only", None),
        ("torchrun --nproc-per-node 2 -m fewjoules train --outt run", "there is no option --outt"),
        ("make demo", None),
        ("make dmeo", "there is no target dmeo"),
        ("python benchmarks/nothing.py", "there is no file benchmarks/nothing.py"),
    ],
)
def test_commands_that_are_shown_are_looked_up(command, mistake):
    assert mistake_in(command) == mistake


@pytest.mark.parametrize("same", [True, False])
def test_an_output_of_trainings_counts_where_trainings_are_rounded_alike(tmp_path, monkeypatch, same):
    text = """
'''python
print("momentum took 14 rounds")
'''

<!-- numbers within 30 % -->
'''text
Adam took 14 rounds
'''
"""
    monkeypatch.setattr(rounding, "is_that_of_the_pages", lambda: same)
    with pytest.raises(PageError, match="Adam") if same else contextlib.nullcontext():
        run_page(page(tmp_path, text), tmp_path)


def test_the_bits_of_a_training_are_recorded_and_those_of_another_one_differ(tmp_path, monkeypatch):
    assert len(rounding.RECORD.read_text(encoding="utf-8").strip()) == 64
    monkeypatch.setattr(rounding, "RECORD", tmp_path / "bits.txt")
    rounding.record()
    assert rounding.is_that_of_the_pages()
    monkeypatch.setattr(rounding, "TRAINING", rounding.TRAINING.replace("rng(0)", "rng(1)"))
    assert not rounding.is_that_of_the_pages()
