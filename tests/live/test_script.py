"""A script under our eye behaves as under Python itself: every case is run both ways and compared."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gobrrr.doors import running
from gobrrr.errors import InputError, UsageError
from gobrrr.observe.live.loops import script
from gobrrr.observe.live.loops.arrival import WhenTorchArrives

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

DRIVER = """
import sys
sys.path.insert(1, {source!r})
from gobrrr.observe.live.loops import script

class Eye:
    stop_after = False
    def open(self): pass
    def close(self): pass
    def found(self): return None

module = sys.argv[1] == "-m"
rest = sys.argv[2:] if module else sys.argv[1:]
ran = script.run(rest[0], rest[1:], is_module=module, loop=Eye())
sys.stderr.flush()
sys.exit(ran.status)
"""

FINDER_DRIVER = DRIVER.replace("Eye())", "Finder(Fake()))").replace(
    "module = sys",
    """
from gobrrr.observe.live.loops.loop import Finder
class Fake:
    done, steps_from = False, ""
    def open(self): pass
    close = restart = boundary = open
module = sys""",
    1,
)


def by_python(*arguments: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, *arguments], folder, options)


def by_us(*arguments: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, "-c", DRIVER.format(source=SOURCE), *arguments], folder, options)


def _run(command: list[str], folder: Path, options: dict) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, env=environment, check=False, **options
    )


def same(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    ours, theirs = by_us(*arguments, folder=folder, **options), by_python(*arguments, folder=folder, **options)
    assert ours.stderr == theirs.stderr
    assert ours.stdout == theirs.stdout
    assert ours.returncode == theirs.returncode
    return ours


def write(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return name


def test_argv_path_and_main(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 7", "lib/neighbour.py")
    name = write(
        tmp_path,
        '''
        """The doc."""
        import os, sys
        import neighbour, __main__
        print(sys.argv, sys.path[0], os.getcwd(), neighbour.VALUE)
        print(__name__, __file__, __package__, __spec__, __doc__, __annotations__, type(__loader__).__name__)
        print(__main__ is sys.modules["__main__"], __main__.__dict__ is globals(), __builtins__.len is len)
        print(sorted(k for k in globals() if k.startswith("__")))
        if __name__ == "__main__":
            print("main")
        ''',
        "lib/train.py",
    )
    assert "main" in same(tmp_path, name, "--lr", "1e-3", "a b").stdout


def test_a_linked_script_looks_beside_the_real_one(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 7", "real/neighbour.py")
    write(tmp_path, "import sys, neighbour; print(neighbour.VALUE, sys.argv, sys.path[0], __file__)", "real/train.py")
    (tmp_path / "train.py").symlink_to(tmp_path / "real" / "train.py")
    same(tmp_path, "train.py")


@pytest.mark.parametrize("code", ["", "None", "0", "3", "-1", "256", "True", "'what went wrong'", "('a', 1)", "1.5"])
def test_exit_codes(tmp_path: Path, code: str) -> None:
    same(tmp_path, write(tmp_path, f"import sys; print('before'); sys.exit({code})"))


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return 1 / x\nf(0)",
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('bad') from e",
        "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('bad')",
        "import sys\nsys.excepthook = lambda kind, value, at: print(kind, value, at.tb_lineno)\nraise ValueError(3)",
        "import sys\nsys.excepthook = lambda kind, value: 0\nraise ValueError(3)",
        "import not_there_at_all",
        "assert False, 'never'",
        "exec(compile('x +', 'inner.py', 'exec'))",
        "import atexit\natexit.register(print, 'last')\nprint('first')\nraise RuntimeError",
        "import threading, time\nf = lambda: (time.sleep(0.2), print(2))\nthreading.Thread(target=f).start()\nprint(1)",
        "import os\nprint('flushed', flush=True)\nos._exit(5)",
        "import signal as s, os\ns.signal(s.SIGTERM, lambda *_: print('term'))\nos.kill(os.getpid(), s.SIGTERM)",
        "import sys\nsys.stdout.write('no newline'); sys.stderr.write('err')",
        "import os, sys\nif os.fork() == 0:\n    sys.exit(4)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
        "import os, sys\nif os.fork() == 0:\n    os.write(1, b'child')\nelse:\n    print(os.wait()[1])",
    ],
)  # fmt: skip
def test_ends_as_python_ends_it(tmp_path: Path, text: str) -> None:
    same(tmp_path, write(tmp_path, text))


def test_killed_by_a_signal(tmp_path: Path) -> None:
    done = same(tmp_path, write(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"))
    assert done.returncode == -signal.SIGTERM


def test_interrupted(tmp_path: Path) -> None:
    text = "import time, sys\ntry:\n    print('up', flush=True)\n    time.sleep(60)\nfinally:\n    print('finally')"
    name = write(tmp_path, text)
    outputs = []
    for command in ([sys.executable, "-c", DRIVER.format(source=SOURCE), name], [sys.executable, name]):
        child = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        )  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        outputs.append(child.communicate(timeout=60))
        # Python itself dies of the signal, which a shell reports as 130
        assert child.returncode in (130, -signal.SIGINT)
    assert outputs[0] == outputs[1]
    assert "finally" in outputs[0][0]
    assert outputs[0][1].endswith("KeyboardInterrupt\n")


def test_reads_its_input(tmp_path: Path) -> None:
    same(tmp_path, write(tmp_path, "print(input('name? ')); import sys; print(sys.stdin.read())"), input="ada\nrest\n")


def test_modules(tmp_path: Path) -> None:
    write(tmp_path, "print('package', __name__)", "pkg/__init__.py")
    write(tmp_path, "print('main of it')", "pkg/__main__.py")
    write(
        tmp_path,
        """
        import sys
        from . import helper
        print(__name__, __package__, __spec__.name, __file__, sys.argv, sys.path[0], helper.VALUE)
        """,
        "pkg/train.py",
    )
    write(tmp_path, "VALUE = 3", "pkg/helper.py")
    assert "pkg.train" in same(tmp_path, "-m", "pkg.train", "--epochs", "3").stdout
    same(tmp_path, "-m", "pkg")
    same(tmp_path, "-m", "json.tool", "--help")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("module", [False, True])
def test_processes_and_pickles(tmp_path: Path, method: str, module: bool) -> None:
    write(tmp_path, "", "pkg/__init__.py")
    write(
        tmp_path,
        f"""
        import multiprocessing, pickle, sys
        class Thing:
            def __init__(self, value): self.value = value
        def double(thing): return Thing(2 * thing.value), __name__, sys.argv
        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Thing(1))).value, Thing.__module__)
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                thing, name, argv = pool.map(double, [Thing(4)])[0]
                print(thing.value, name, argv)
        """,
        "pkg/train.py",
    )
    arguments = ("-m", "pkg.train", "x") if module else ("pkg/train.py", "x")
    assert "8 " in same(tmp_path, *arguments).stdout


@pytest.mark.slow  # up to six processes that load torch
@needs_torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(tmp_path: Path, method: str) -> None:
    name = write(
        tmp_path,
        f"""
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, at): return torch.nn.functional.relu(torch.full((2,), float(at)))
        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(Data(), 2, num_workers=1, multiprocessing_context={method!r})
            print([batch.tolist() for batch in loader])
        """,
    )
    command = [sys.executable, "-W", "error", "-c", FINDER_DRIVER.format(source=SOURCE), name]
    ours, theirs = _run(command, tmp_path, {}), by_python(name, folder=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


WRONG_SHAPES = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(5, 4))
def go(x):
    return net(x)
with torch.no_grad():
    go(torch.ones(2, 4))
"""


@pytest.mark.slow  # two processes that load torch
@needs_torch
def test_a_traceback_through_what_we_put_in(tmp_path: Path) -> None:
    name = write(tmp_path, WRONG_SHAPES)
    command = [sys.executable, "-c", FINDER_DRIVER.format(source=SOURCE), name]
    ours, theirs = _run(command, tmp_path, {}), by_python(name, folder=tmp_path)
    assert "shapes cannot be multiplied" in theirs.stderr
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


class Quiet:
    stop_after = False

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def found(self) -> list[str]:
        return self.calls


@pytest.fixture
def process():
    """This process as it was: a run leaves it to the script."""
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    yield before
    sys.argv[:], sys.path[:], sys.modules["__main__"] = before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"step = = 3\n", r"is not Python: .* \(line 1\)"),
        (b"\x7fELF\x00\x00\xff", "is not Python"),
        (b"\x00\x00", r"is not Python: [^()]*$"),  # of no line
        (b"x = '\xff'\n", "is not Python"),
    ],
)
def test_nothing_to_run(tmp_path: Path, process: tuple, content: bytes | None, message: str) -> None:
    path = tmp_path / "train.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        script.run(str(path), loop=Quiet())
    assert "\n" not in str(caught.value)
    assert (sys.argv, sys.path, sys.modules["__main__"]) == process


def test_a_folder_and_an_unknown_module(tmp_path: Path, process: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "", "pkg/__init__.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="is a folder"):
        script.run(str(tmp_path), loop=Quiet())
    for name, message in (("no_such_thing", "no_such_thing"), ("pkg.none", "pkg.none"), ("pkg", "without a __main__")):
        with pytest.raises(InputError, match=message):
            script.run(name, is_module=True, loop=Quiet())
    with pytest.raises(UsageError, match="full name"):
        script.run(".pkg", is_module=True, loop=Quiet())
    assert (sys.argv, sys.path, sys.modules["__main__"]) == process
    sys.modules.pop("pkg")


@needs_torch
def test_a_traceback_of_this_process_names_nothing_of_ours(
    tmp_path: Path, process: tuple, capsys: pytest.CaptureFixture
) -> None:
    from gobrrr.observe.live.loops.loop import Finder
    from tests.live.loops import Fake, state

    path = tmp_path / write(tmp_path, WRONG_SHAPES)
    before = state()
    ran = script.run(str(path), loop=Finder(Fake()))
    said = capsys.readouterr().err
    assert ran.status == 1
    assert "shapes cannot be multiplied" in said
    assert f'File "{path}", line 5, in go' in said
    assert str(Path(script.__file__).parents[3]) not in said
    assert state() == before


def test_what_is_returned(tmp_path: Path, process: tuple, capsys: pytest.CaptureFixture) -> None:
    name = write(tmp_path, "raise ValueError('why')")
    ran = script.run(str(tmp_path / name), loop=Quiet())
    assert ran == script.ScriptRun(status=1, found=["open", "close"], error="ValueError: why")
    assert capsys.readouterr().err.count("ValueError: why") == 1


@needs_torch
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import torch, argparse\nargparse.ArgumentParser().parse_args(['--nope'])",
            "ended itself (sys.exit), with status 2",
        ),
        ("import sys\nsys.exit(0)", "ended itself (sys.exit), with status 0"),
        ("import torch\nraise ValueError('why')", "The script ended in an error: ValueError: why"),
    ],
)
def test_why_there_is_no_loop_says_how_the_script_ended(tmp_path: Path, process: tuple, text: str, said: str) -> None:
    ran = running.run(str(tmp_path / write(tmp_path, text)), [], module=False, on=None, stop_after=False)
    assert said in ran.why_not
    quiet = running.run(str(tmp_path / write(tmp_path, "import torch")), [], module=False, on=None, stop_after=False)
    assert "ended" not in quiet.why_not


@needs_torch
def test_a_loop_of_a_single_step_has_no_answer(tmp_path: Path, process: tuple) -> None:
    ran = running.run(str(tmp_path / write(tmp_path, FEW.format(1))), [], module=False, on=None, stop_after=False)
    assert "the loop ended after 1 step, while warming up; an answer needs 2, and a sure one up to" in ran.why_not


@needs_torch
@pytest.mark.parametrize(("steps", "timed"), [(2, 0), (3, 0), (4, 1), (6, 3)])
def test_a_loop_that_ends_early_is_diagnosed_as_far_as_it_was_seen(
    tmp_path: Path, process: tuple, monkeypatch: pytest.MonkeyPatch, steps: int, timed: int
) -> None:
    """Of its steps the first only begins the second, one is recorded and one looked at; the others are timed."""
    monkeypatch.setattr("gobrrr.doors.live._measure_once", lambda _: True)
    script = str(tmp_path / write(tmp_path, FEW.format(steps)))
    found = running.run(script, [], module=False, on=None, stop_after=False).diagnosis
    assert found is not None
    assert found.live is not None
    assert found.live.ended_after == steps
    assert len(found.live.times.ns) == timed
    wall = found.unprofiled_wall_ns
    assert wall.how == ("measured" if timed else "estimated")
    assert wall.value is not None
    assert wall.low is not None
    assert wall.high is not None
    assert wall.low < wall.value < wall.high
    assert found.caveats[0].startswith(f"The loop ended after {steps} steps: ")
    lines = {place.name for place in found.places if place.kind == "line"}
    assert ("sgd.step()" in lines) == (steps > 2)  # the operations of the second were looked at


FEW = """
import torch
net = torch.nn.Linear(64, 64)
sgd = torch.optim.SGD(net.parameters())
for _ in range({}):
    net(torch.ones(64, 64)).sum().backward()
    sgd.step()
"""


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    stop()\nfinally:\n    print('finally')",
        "try:\n    stop()\nexcept BaseException as e:\n    raise RuntimeError('failed') from e",
        "import sys\ntry:\n    stop()\nexcept BaseException:\n    sys.exit(3)",
    ],
)
def test_stopped(tmp_path: Path, process: tuple, capsys: pytest.CaptureFixture, text: str) -> None:
    stop = f"from {script.__name__} import Stopped\ndef stop():\n    raise Stopped\n"
    ran = script.run(str(tmp_path / write(tmp_path, stop + text)), loop=Quiet(), stop_after=True)
    assert (ran.status, ran.stopped, ran.error) == (0, True, None)
    assert capsys.readouterr().err == ""


STAND_IN = "import os\ndef get_num_threads(): return int(os.environ['OMP_NUM_THREADS'])\n"
"""A module named torch that is quick to load."""


@pytest.mark.parametrize(
    "torch", [STAND_IN, pytest.param(None, marks=[pytest.mark.slow, needs_torch])], ids=["a stand-in", "torch"]
)
def test_torch_is_not_imported_before_the_script_does(tmp_path: Path, torch: str | None) -> None:
    if torch is not None:
        write(tmp_path, torch, "torch.py")
    name = write(
        tmp_path,
        """
        import os, sys
        assert "torch" not in sys.modules
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch
        print(torch.get_num_threads(), torch.__spec__.loader is torch.__loader__, len(sys.meta_path))
        """,
    )
    opened = 'def open(self): print("opened", "torch" in sys.modules, file=sys.stderr)'
    later = "WhenTorchArrives(Eye)"
    driver = DRIVER.replace("def open(self): pass", opened).replace("loop=Eye()", f"loop={later}")
    driver = driver.replace(
        "module = sys", "from gobrrr.observe.live.loops.arrival import WhenTorchArrives\nmodule = sys", 1
    )
    command = [sys.executable, "-c", driver.format(source=SOURCE), name]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    ours = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    theirs = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert theirs.stdout.startswith("1 ")
    assert (ours.stdout, ours.stderr) == (theirs.stdout, "opened True\n")


def test_a_script_without_torch(tmp_path: Path, process: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list(sys.meta_path)
    if "torch" in sys.modules:
        monkeypatch.delitem(sys.modules, "torch")
    later = WhenTorchArrives(Quiet)
    ran = script.run(str(tmp_path / write(tmp_path, "x = 1")), loop=later)
    assert (ran.status, ran.found, later.eye) == (0, None, None)
    assert sys.meta_path == kept
