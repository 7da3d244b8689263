"""Offset syncs are written to the configured cluster, or not at all."""

import pytest

from schemas.mm2.records import OffsetSync
from tests.support.brokers import Record, consume_all, create_topic, produce

pytestmark = [pytest.mark.kafka, pytest.mark.story]

ON_SOURCE, ON_TARGET = "mm2-offset-syncs.eu-west.internal", "mm2-offset-syncs.us-east.internal"


@pytest.mark.parametrize("configured", ["source", "target", "nowhere"])
def test_offset_syncs_are_written_to_the_configured_cluster(world, unique_topic, configured):
    is_emitted = configured != "nowhere"
    location = {"offset-syncs.topic.location": configured} if is_emitted else {}
    here = world(unique_topic, **{"emit.offset-syncs.enabled": str(is_emitted).lower(), **location})
    create_topic(here.source.bootstrap_servers, unique_topic)
    produce(here.source.bootstrap_servers, unique_topic, [Record(b"k", b"v")] * 3)

    here.mirror()

    expected = [OffsetSync(unique_topic, 0, 0, 0), OffsetSync(unique_topic, 0, 2, 2)]
    found = {"source": _syncs(here.source, ON_SOURCE), "target": _syncs(here.target, ON_TARGET)}
    own = {
        where: [sync for sync in syncs if sync.topic == unique_topic]
        for where, syncs in found.items()
    }
    assert own == {"source": [], "target": []} | ({configured: expected} if is_emitted else {})


def _syncs(broker, topic):
    try:
        found = consume_all(broker.bootstrap_servers, topic)
    except KeyError:  # the topic does not exist
        return []
    return [OffsetSync.read(each.key(), each.value()) for each in found]
