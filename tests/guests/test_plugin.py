"""The cost plugin's Python side: arguments and output. tests/guest/test_plugin.py checks what it counts."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, UserError
from lab.core.paths import data_folder
from lab.guests import hardware, model_version, plugin
from lab.guests.plugin import Brackets, Instrument, Model, load_instrument
from lab.kernels import architecture
from lab.kernels.architecture import Architecture
from lab.kernels.compilers import Compiler

from ..fakes.build import own_folders

HEADER = '{"t":"header","schema":3,"interface":1,"model":"tlb","vcpus":1}'
WINDOW = (
    '{"t":"window","sequence":0,"case":1,"kind":"own","complete":true,"millicycles":700,'
    '"user":{"instructions":2,"string_bytes":0,"loads":1},"kernel":{"instructions":2,"string_bytes":0,"loads":0},'
    '"in_program":{"millicycles":[400,200],"user":{"instructions":2,"loads":1},"kernel":{"instructions":1,"loads":0}},'
    '"in_interrupts":{"millicycles":[0,100],"user":{"instructions":0},"kernel":{"instructions":1}},'
    '"in_threads":{"millicycles":[0,0],"user":{"instructions":0},"kernel":{"instructions":0}},'
    '"unprofiled":[0,0],"interruptions":1,"operations":[[400,200,2,1,0]],"kinds":[[{"instruction":2},{"instruction":1}]]}'
)
PROFILE = '{"t":"profile","sequence":0,"blocks":[[4198400,2,400,2],[18446744071562067968,1,200,1]]}'
END = '{"t":"end"}'


def parse(*lines: str) -> list[plugin.Window]:
    return plugin.parse([f"{line}\n".encode() for line in lines])


def test_output() -> None:
    output = parse(HEADER, WINDOW, PROFILE, END)
    (window,) = output
    assert window.own and (window.case, window.millicycles, window.instructions) == (1, 700, 4)
    assert (window.in_program.instructions, window.in_interrupts.millicycles) == (3, (0, 100))
    assert [operation.millicycles for operation in window.operations] == [600]
    assert [block.kernel for block in window.blocks] == [False, True]
    assert window.blocks[1].address == 0xFFFFFFFF80000000


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "does not begin with a header"),
        ((HEADER.replace('schema":3', 'schema":5'), END), "schema 5 is not known"),
        ((HEADER, WINDOW, END), "out of order"),
        ((HEADER, WINDOW, PROFILE.replace('sequence":0', 'sequence":1'), END), "out of order"),
        ((HEADER, WINDOW, PROFILE), "its end is missing"),
        ((HEADER, WINDOW, PROFILE.replace("400", "401"), END), "cycles do not add up"),
        ((HEADER, WINDOW, PROFILE.replace("[4198400,2,", "[4198400,3,"), END), "instructions do not add up"),
        (
            (HEADER, WINDOW.replace('"instructions":2,"loads"', '"loads"'), PROFILE, END),
            "user counters have no instructions",
        ),
        ((HEADER, WINDOW.replace("[400,200,2,1,0]", "[400,200,2,1,2]"), PROFILE, END), "a kind that has no events"),
        ((HEADER, WINDOW.replace("700", "9" * 400), PROFILE, END), "cannot be used"),
        ((HEADER, WINDOW.replace("700", "-700"), PROFILE, END), "cannot be used"),
    ],
)
def test_what_cannot_be_trusted_is_refused(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(GuestFailed, match="cost plugin's output") as caught:
        parse(*lines)
    assert caught.value.kind == "malformed"
    assert message in caught.value.message


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = "\n".join([HEADER, WINDOW, PROFILE, END]).encode()
    path = tmp_path / "cost.jsonl"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(GuestFailed) as caught:
            plugin.read(path)
        assert caught.value.log == path


def test_an_output_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GuestFailed, match="left no output"):
        plugin.read(tmp_path / "none")


def test_argument_escapes_commas() -> None:
    library, out = Path("/a,b/libcost.so"), Path("/c,d/cost.jsonl")
    text = plugin.argument(library, hardware.load("zen4"), model=Model.FULL, brackets=Brackets.WINDOW, out=out)
    assert text.startswith("/a,,b/libcost.so,out=/c,,d/cost.jsonl,model=full,brackets=window,dtlb_4k=72:72,")
    assert text.endswith(",exception=500000")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_folders(monkeypatch, tmp_path)
    return tmp_path / "cache"


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="needs gcc and make")
def test_it_is_built_once(cache: Path) -> None:
    built = plugin.obtain()
    assert built.is_relative_to(cache) and built.read_bytes()[:4] == b"\x7fELF"
    stamp = built.stat().st_mtime_ns
    assert plugin.obtain() == built and built.stat().st_mtime_ns == stamp


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_a_compiler_that_fails_is_named(cache: Path) -> None:
    false = Compiler(command="false", family="gcc", major=12, version="false 1", linker="ld")
    with pytest.raises(BuildFailed, match="cannot be compiled with false") as caught:
        plugin.obtain(compiler=false)
    assert caught.value.log and caught.value.log.is_relative_to(cache)


def test_lines_that_moved_are_those_of_their_window() -> None:
    lines = (
        '{"t":"lines","sequence":0,"lines":[{"line":128,"address":18446744071562067968,"readers":3,"writers":1,'
        '"moves":5,"essential":4,"queued":7,"waited":0,"uses":[[18446744071562067970,3,2,4,1,3,255]]}]}'
    )
    (window,) = parse(HEADER, WINDOW.replace('"interruptions":1,', '"interruptions":1,"of_vcpus":[3,4],'), PROFILE,
                       lines, END)  # fmt: skip
    assert window.of_vcpus == [3, 4]
    (line,) = window.lines
    assert (line.moves, line.essential, line.uses[0].loads, line.uses[0].stores) == (5, 4, 3, 2)
    with pytest.raises(GuestFailed, match="out of order"):
        parse(HEADER, lines, END)


# ---- the instrument


ARCHITECTURES = [architecture.load(name) for name in architecture.names()]
HEADERS = data_folder("workloads") / "include" / "lab"


@pytest.fixture
def instrument(tmp_path: Path) -> Instrument:
    library = tmp_path / "0123456789abcdef" / "libcost.so"
    return Instrument(library=library, machine=hardware.load("zen4"), model=Model.TLB)


def brackets(instrument: Instrument, root: bytes, tmp_path: Path, guests: Architecture) -> str:
    (tmp_path / "root.cpio").write_bytes(root)
    _, words = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    return re.findall(r"brackets=(\w+)", words)[0]


def number(function: str) -> int:
    """The mark of a function in mark.h."""
    (code,) = re.findall(rf"{function}\(void\)\s*{{\s*LAB_MARK\((\d+)\)", (HEADERS / "mark.h").read_text())
    return int(code)


@pytest.mark.parametrize("guests", ARCHITECTURES, ids=lambda guests: guests.name)
def test_marks_of_programs_say_what_is_modelled(guests: Architecture, instrument: Instrument, tmp_path: Path) -> None:
    # lab_booted is init's own, which is in every guest.
    marks = {"lab_window_begin": "window", "lab_measures_boot": "boot", "lab_booted": "both"}
    for function, expected in marks.items():
        root = b"ELF" + guests.mark.numbered(number(function)) + b"more"
        assert brackets(instrument, root, tmp_path, guests) == expected, function
    assert brackets(instrument, b"ELF and no mark", tmp_path, guests) == "both"


@pytest.mark.parametrize("guests", ARCHITECTURES, ids=lambda guests: guests.name)
def test_marks_are_those_that_programs_are_compiled_with(guests: Architecture, tmp_path: Path) -> None:
    if shutil.which(guests.compiler) is None:
        pytest.skip(f"{guests.compiler} is not installed")
    source, compiled = tmp_path / "marks.c", tmp_path / "marks.o"
    source.write_text("#include <lab/mark.h>\nvoid marks(void) { LAB_MARK(1); LAB_MARK(9); }\n")
    command = [guests.compiler, "-O2", "-c", f"-I{HEADERS.parent}", source, "-o", compiled]
    subprocess.run(command, check=True)
    assert guests.mark.numbered(1) + guests.mark.numbered(9) in compiled.read_bytes()


def test_its_identity_names_model_machine_and_version(instrument: Instrument, tmp_path: Path) -> None:
    instrument = instrument.of("syscalls")
    version = f"v{model_version.current(['syscalls'])}"
    assert instrument.identity == f"tlb zen4 {instrument.machine.key[:8]} {version}"
    assert replace(instrument, model=Model.COUNT).identity == f"count {version}"
    assert replace(instrument, library=tmp_path / "other" / "libcost.so").identity == instrument.identity


def test_all_that_the_plugin_is_given_is_in_its_identity_or_a_path(instrument: Instrument, tmp_path: Path) -> None:
    (tmp_path / "root.cpio").write_bytes(b"")
    _, option = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", architecture.load())
    library, out, model, brackets, *machine = option.split(",")
    assert (library, out) == (str(instrument.library), f"out={tmp_path}/costs.jsonl")
    assert brackets == "brackets=both"  # follows from the root, whose contents are in the fingerprint
    assert f"{model} {records.digest(machine)[:8]}" == f"model={instrument.model} {instrument.identity.split()[2]}"


def test_no_model_is_no_instrument() -> None:
    assert load_instrument("zen4", "none") is None


def test_vcpus_that_contend_are_another_model(instrument: Instrument, tmp_path: Path) -> None:
    contending = instrument.contending(50)
    assert contending.identity.startswith(instrument.identity) and contending.identity != instrument.identity
    guests = architecture.load()
    (tmp_path / "root.cpio").write_bytes(b"ELF")
    _, words = contending.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    assert "quantum=50" in words and "move=85000" in words and "between" not in words
    (tmp_path / "root.cpio").write_bytes(b"ELF" + guests.mark.numbered(number("lab_operation_begin")))
    _, words = contending.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    assert words.endswith("between=1")
    with pytest.raises(UserError, match="counts no cycles"):
        replace(instrument, model=Model.COUNT).contending(50)
    with pytest.raises(UserError, match="nothing of several CPUs"):
        replace(instrument, machine=msgspec.structs.replace(instrument.machine, coherence=None)).contending(50)


def test_the_price_of_a_move_leaves_the_key_of_a_machine() -> None:
    machine = hardware.load("zen4")
    assert machine.coherence is not None
    assert msgspec.structs.replace(machine, coherence=None).key == machine.key


@pytest.mark.parametrize(("aside", "unprofiled"), [([], 100), (["aside"], 0)])
def test_strings_that_began_before_the_window_have_no_block(tmp_path: Path, aside: list[str], unprofiled: int) -> None:
    done = subprocess.run(
        [without_qemu(tmp_path, "string_parts.c"), *aside], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(unprofiled), "300"], "bytes without a block, cycles"


@pytest.mark.parametrize(("numbers", "claimed"), [((7, 2), 1), ((11, 0), 6), ((11, 1), 7), ((12, 0), 7)])
def test_callbacks_are_those_of_the_version(tmp_path: Path, numbers: tuple[int, int], claimed: int) -> None:
    major, minor = numbers
    program = without_qemu(tmp_path, "plugin_versions.c", f"-DMAJOR={major}", f"-DMINOR={minor}", "-rdynamic")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(claimed), "translation", "exit", "reset"]


def without_qemu(folder: Path, source: str, *more: str) -> Path:
    """A program of a part of the plugin, with what QEMU would have."""
    program, plugin_source = folder / "program", data_folder("machines") / "plugin"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-no-pie", *more]
    flags += [f"-I{plugin_source}", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(["gcc", *flags, "-o", program, Path(__file__).with_name(source), "-ldl"], check=True)
    return program
