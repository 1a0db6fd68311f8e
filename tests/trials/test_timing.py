"""Both arms timed in turns by a clock that is told what every step takes: gains, ties, drift and noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from gobrrr.trials import timing  # noqa: E402
from gobrrr.trials.sequential import LEAST_DECIDING_ROUNDS, Round  # noqa: E402
from tests.spread import examples  # noqa: E402

pytestmark = pytest.mark.torch

STEP = 10e6
Noise = Callable[[random.Random], float]


class Machine:
    """A clock that steps move on. `entering`: what the first step takes more. `drift`: a step's growth in each ns."""

    def __init__(self, seed: int = 0, noise: Noise = lambda _: 0.0, drift: float = 0.0, entering: float = 0.0) -> None:
        self.now, self._dice, self._noise, self._drift, self._entering = (
            0.0,
            random.Random(seed),
            noise,
            drift,
            entering,
        )

    def clock(self) -> int:
        return int(self.now)

    def side(self, step_ns: float) -> timing.Side:
        @contextmanager
        def entered() -> Iterator[Callable[[], Any]]:
            noise, first = self._noise(self._dice), [self._entering]

            def call() -> None:
                self.now += step_ns * (1 + noise) + self._drift * self.now + first[0]
                first[0] = 0.0

            yield call

        return entered

    def compare(self, before: float, after: float, **options: Any) -> timing.Compared:
        given = {"step_ns": STEP, "seconds": 30.0, "clock": self.clock, "wait": lambda: None, **options}
        return timing.compare(self.side(before), self.side(after), **given)


def gauss(sigma: float) -> Noise:
    return lambda dice: abs(dice.gauss(0, sigma))


def spikes(sigma: float) -> Noise:
    """Now and then something else has the machine."""
    return lambda dice: abs(dice.gauss(0, sigma)) + (dice.random() < 0.2) * dice.expovariate(1 / (10 * sigma))


def test_a_quiet_machine_shows_any_gain_over_a_hundredth() -> None:
    found = Machine().compare(STEP, 0.9 * STEP)
    assert found.verdict == "helped"
    assert found.timing.before_ns == pytest.approx(STEP)
    assert found.timing.after_ns == pytest.approx(0.9 * STEP)
    assert found.timing.rounds <= timing.SURE_ROUNDS


def test_the_same_is_no_change() -> None:
    found = Machine().compare(STEP, STEP)
    assert found.verdict == "no_change"
    assert found.timing.spread_ns == pytest.approx(timing.LEAST_DIFFERENCE_SHARE * STEP)


def test_less_than_a_hundredth_is_no_change() -> None:
    assert Machine().compare(STEP, 0.995 * STEP).verdict == "no_change"


def test_a_longer_step_is_hurt() -> None:
    assert Machine().compare(STEP, 1.1 * STEP).verdict == "hurt"


def test_the_first_step_after_entering_stands_for_nothing() -> None:
    found = Machine(entering=100 * STEP).compare(STEP, 0.9 * STEP)
    assert found.timing.before_ns == pytest.approx(STEP)


@given(drift=st.floats(0, 1e-5), gain=st.sampled_from([0.0, 0.1]))
@settings(max_examples=examples(25), deadline=None)
def test_an_even_drift_drops_out_whichever_arm_is_first(drift: float, gain: float) -> None:
    """Steps grow to many times what they were: a difference of the order alone would be far over a hundredth."""
    machine = Machine()
    rounds: list[float] = []

    def block(side: timing.Side) -> float:
        level = 1.0 if side is before else 1 - gain
        machine.now += STEP
        return STEP * level + drift * machine.now

    before, after = machine.side(STEP), machine.side(STEP)
    for number in range(10):
        order = (True, False, False, True) if number % 2 else (False, True, True, False)
        rounds.append(timing._round(block, before, after, order).saved)
    assert rounds == pytest.approx([gain * STEP] * 10, abs=1e-3 * STEP)


@given(seed=st.integers(0, 2**32), sigma=st.floats(0.001, 0.3), kind=st.sampled_from([gauss, spikes]))
@settings(max_examples=examples(5), deadline=None)
def test_equal_arms_are_hardly_ever_called_different(seed: int, sigma: float, kind: Callable[[float], Noise]) -> None:
    """One in a hundred at the most, though the rounds are looked at one by one: 5 of 100 by chance once in 5,000."""
    dice = random.Random(seed)
    found = [
        Machine(dice.random(), kind(sigma)).compare(STEP, STEP, seconds=dice.choice([2.0, 10.0])).verdict  # type: ignore[arg-type]
        for _ in range(100)
    ]
    assert found.count("helped") + found.count("hurt") <= 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [gauss(0.01), gauss(0.1), spikes(0.03)], ids=["quiet", "noisy", "spikes"])
def test_of_many_equal_arms_under_one_in_a_hundred_is_called_different(kind: Noise) -> None:
    found = [Machine(seed, kind).compare(STEP, STEP, seconds=60.0).verdict for seed in range(2000)]
    assert found.count("helped") + found.count("hurt") <= 20


@given(seed=st.integers(0, 2**32), sigma=st.floats(0.001, 0.1), kind=st.sampled_from([gauss, spikes]))
@settings(max_examples=examples(12), deadline=None)
def test_a_gain_over_the_noise_is_found(seed: int, sigma: float, kind: Callable[[float], Noise]) -> None:
    dice, gain = random.Random(seed), min(0.9, 0.03 + 5 * sigma)
    found = [
        Machine(dice.random(), kind(sigma)).compare(STEP, (1 - gain) * STEP).verdict  # type: ignore[arg-type]
        for _ in range(20)
    ]
    assert found.count("helped") >= 19
    assert "hurt" not in found


def test_times_that_scatter_are_no_evidence_of_no_change() -> None:
    found = Machine(1, lambda dice: 3 * dice.random()).compare(STEP, STEP)
    assert found.verdict == "inconclusive"
    assert "scatter" in found.why


def test_too_few_rounds_say_nothing() -> None:
    found = Machine().compare(1e9, 0.5e9, step_ns=1e9, seconds=1.0, most_s=1.0)
    assert found.verdict == "inconclusive"
    assert found.timing.rounds < LEAST_DECIDING_ROUNDS
    assert math.isfinite(found.timing.spread_ns)


def test_twice_the_work_in_less_than_twice_the_time_is_helped() -> None:
    found = Machine().compare(STEP, 1.5 * STEP, work=2.0)
    assert found.verdict == "helped"
    assert found.timing.after_ns == pytest.approx(1.5 * STEP)


def test_the_times_of_both_arms_are_the_medians_of_their_own_blocks() -> None:
    found = timing.decide([Round((1e7, 1.2e7), (8e6, 7e6)), *[Round((1e7, 1e7), (8e6, 8e6))] * 5], steps=5)
    assert (found.timing.before_ns, found.timing.after_ns) == (1e7, 8e6)
    assert found.verdict == "helped"
    assert found.why == "10.0 ms before, 2.00 ms faster (20.0 %) with it, give or take 100 us (6 rounds)"
    assert found.timing.steps == 5 * 4 * 6


@pytest.mark.parametrize(("after", "said"), [(1.03e7, "300 us slower (3.0 %)"), (0.97e7, "300 us faster (3.0 %)")])
def test_a_difference_has_its_sign_in_every_verdict(after: float, said: str) -> None:
    for wide in (0.0, 4e5, 5e6):
        rounds = [Round((1e7 - wide, 1e7 + wide), (after - wide, after + wide))] * 6
        found = timing.decide(rounds, steps=5)
        assert said in found.why
        assert "difference" not in found.why


@given(seed=st.integers(0, 2**32), share=st.floats(0.2, 0.8), slow=st.floats(3, 20))
@settings(max_examples=examples(40), deadline=None)
def test_a_machine_of_two_speeds_makes_no_gain_and_no_step_of_nothing(seed: int, share: float, slow: float) -> None:
    machine = Machine(seed, lambda dice: slow if dice.random() < share else 0.0)
    found = [machine.compare(STEP, STEP, seconds=3.0) for _ in range(20)]
    assert sum(one.verdict in ("helped", "hurt") for one in found) <= 2
    for one in found:
        assert one.timing.after_ns >= STEP * 0.999
        if one.verdict == "helped":
            assert one.timing.before_ns - one.timing.after_ns > one.timing.spread_ns


@pytest.mark.parametrize("period", [100e6, 110e6, 170e6])
def test_stalls_in_step_with_the_rounds_are_no_gain(period: float) -> None:
    """Equal arms, 10 % slower for half of each period: an order that goes on evenly would see a gain in most runs."""
    verdicts = []
    for seed in range(40):
        machine = Machine(seed)
        offset = machine._dice.random() * period

        def side(machine: Machine = machine, offset: float = offset) -> AbstractContextManager[Callable[[], None]]:
            def call() -> None:
                slow = (machine.now + offset) % period < period / 2
                machine.now += 1e7 * (1.1 if slow else 1.0) * (1 + abs(machine._dice.gauss(0, 0.01)))

            return nullcontext(call)

        verdicts.append(timing.compare(side, side, step_ns=1e7, seconds=30.0, clock=machine.clock, wait=lambda: None))
    assert sum(one.verdict in ("helped", "hurt") for one in verdicts) <= 3


def test_a_gain_of_more_than_the_step_is_none() -> None:
    """The machine was slow whenever the first arm had its turn."""
    found = timing.decide([*[Round((20.7, 64.7), (20.7, 20.7))] * 8], steps=5)
    assert found.verdict == "inconclusive"
    assert found.timing.after_ns == 20.7


def test_a_gain_is_certain_by_its_end_that_is_nearer_to_none() -> None:
    """A few slow blocks of the step as it is make a gain look larger, and no less certain."""
    slow = [Round((10.0, one), (3.0, 3.0)) for one in (9.0, 9.5, 10.0, 10.0, 10.0, 10.0, 60.0, 180.0)]
    found = timing.decide(slow, steps=5)
    assert found.verdict == "helped"
    assert found.timing.spread_ns <= 1.0
    other = [Round(one.others, one.firsts) for one in slow]
    assert timing.decide(other, steps=5).verdict == "hurt"


def test_no_gain_is_as_uncertain_as_the_farther_end_is_far() -> None:
    found = timing.decide([*[Round((10.0, 10.0), (10.0, 10.0))] * 5, *[Round((10.0, 10.0), (10.0, 18.0))] * 3], steps=5)
    assert found.verdict == "inconclusive"
    assert found.timing.spread_ns == pytest.approx(8.0)


def test_medians_that_say_otherwise_than_the_rounds_settle_nothing() -> None:
    apart = timing._Read(base=1e7, other=1e7, saved=3e6, least=2.9e6, most=3.1e6)
    verdict, why = timing._verdict(apart, 1e5, 8)
    assert verdict == "inconclusive"
    assert "no faster or slower (0.0 %) by the medians of all blocks, 3.00 ms faster (30.0 %) by the rounds'" in why


def test_the_state_is_put_back_before_every_block_and_never_inside_an_arm() -> None:
    machine, inside, calls = Machine(), [0], [0]

    @contextmanager
    def side() -> Iterator[Callable[[], Any]]:
        inside[0] += 1
        with machine.side(STEP)() as call:
            yield call
        inside[0] -= 1

    def prepare() -> None:
        assert not inside[0]
        calls[0] += 1

    found = timing.compare(side, side, step_ns=STEP, seconds=9, prepare=prepare, clock=machine.clock, wait=lambda: None)
    assert calls[0] == 4 * found.timing.rounds


def test_no_round_more_than_there_is_time_for_and_never_too_few_to_say_something() -> None:
    machine = Machine()
    found = machine.compare(1e9, 0.5e9, step_ns=1e9, seconds=1.0, most_s=40.0, idle=0)
    assert (found.verdict, found.timing.rounds) == ("helped", LEAST_DECIDING_ROUNDS)
    assert machine.now / 1e9 == pytest.approx(LEAST_DECIDING_ROUNDS * 3.0)
    machine = Machine()
    found = machine.compare(1e9, 0.5e9, step_ns=1e9, seconds=1.0, most_s=11.0, idle=0)
    assert found.why == "not decided in the time: timed in 3 rounds, and a verdict takes at least 4"
    assert machine.now / 1e9 <= 11.0


@pytest.mark.parametrize(("gain", "most"), [(0.5, 4), (0.1, 5), (-0.3, 4), (0.0, 14)])
def test_a_slow_step_takes_a_handful_of_rounds(gain: float, most: int) -> None:
    """A step of 1.3 s that scatters by 2 %: 16 of them where the difference is plain."""
    found = [
        Machine(seed, gauss(0.02)).compare(1.3e9, (1 - gain) * 1.3e9, step_ns=1.3e9, seconds=100.0, idle=0)
        for seed in range(20)
    ]
    said = {"helped"} if gain > 0 else {"hurt"} if gain < 0 else {"no_change"}
    assert {one.verdict for one in found} == said
    assert sorted(one.timing.rounds for one in found)[17] <= most


def warmed(times: list[float], **options: Any) -> timing.Warmth:
    now, left = [0.0], list(times)

    def call() -> None:
        now[0] += left.pop(0) if left else times[-1]

    given = {"seconds": 100.0, "clock": lambda: int(now[0]), "wait": lambda: None, **options}
    return timing.warm_up(call, **given)


def test_a_warm_up_ends_when_steps_agree_and_says_what_it_took() -> None:
    found = warmed([5e9, 1e9, STEP, STEP, STEP, STEP])
    assert len(found.times_ns) == 5
    assert found.step_ns == STEP
    assert found.extra_s == pytest.approx(6 - 2 * STEP / 1e9)
    assert found.settled


def test_a_warm_up_has_its_bounds() -> None:
    uneven = [STEP * (1 + i % 2) for i in range(200)]
    assert len(warmed(uneven, most=12).times_ns) == 12
    assert len(warmed(uneven, seconds=0.05).times_ns) == 5


def test_a_warm_up_goes_on_while_something_is_compiled() -> None:
    count = [0]

    def compiling() -> int:
        count[0] += 1
        return min(count[0], 10)

    found = warmed([STEP], compiling=compiling)
    assert len(found.times_ns) == 12
    assert found.settled


def test_compiling_is_no_part_of_the_seconds_of_a_warm_up() -> None:
    found = warmed([9e9, STEP, STEP, STEP], seconds=0.02)
    assert found.step_ns == STEP
    assert found.extra_s == pytest.approx(9, rel=0.01)


def test_while_nothing_is_decided_rounds_go_on_beyond_the_usual_time_and_end_as_soon_as_they_tell() -> None:
    given: dict[str, Any] = {"seconds": 4 * STEP / 1e9, "idle": 0}
    gain, short = 0.93 * STEP, Machine(0, gauss(0.12))
    assert short.compare(STEP, gain, **given).verdict == "inconclusive"
    found = Machine(0, gauss(0.12)).compare(STEP, gain, patient=True, most_s=3600.0, **given)
    assert found.verdict == "helped"
    assert LEAST_DECIDING_ROUNDS < found.timing.rounds < timing.MOST_ROUNDS
    late = Machine(0, gauss(0.12)).compare(STEP, gain, patient=True, most_s=20 * STEP / 1e9, **given)
    assert late.timing.rounds <= 5
