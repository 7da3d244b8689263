"""Half a minute of chaos; `make chaos` goes on for longer."""

import pytest

from tests.chaos.run import chaos

pytestmark = pytest.mark.kafka

SEED = 12
"""In half a minute it comes to six kinds: kills, a freeze, silence, a full restart, growth."""


@pytest.mark.timeout(420)
def test_no_record_is_lost_duplicated_reordered_or_altered_in_thirty_seconds_of_chaos(tmp_path):
    told = []
    findings = chaos(tmp_path, SEED, 30, told.append)
    assert findings.wrong == [], told
