"""Evidence that the tests of treatments share."""

from __future__ import annotations

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from tests.evidence import certain, evidence_from
from tests.traces import Trace


@pytest.fixture(scope="session")
def launch_bound(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A step of a GPU that waits for each of 40 launches."""
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            for _ in range(40):
                trace.op("aten::relu", [[64, 64]], 2.0, host_us=40.0)
    return certain(evidence_from(trace.write(tmp_path_factory.mktemp("trace"))))
