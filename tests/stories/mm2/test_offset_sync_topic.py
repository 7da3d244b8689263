"""Offset syncs are where the file says, or nowhere."""

import pytest

from schemas.mm2.records import OffsetSync
from tests.support.brokers import Record, consume_all, create_topic, produce

pytestmark = [pytest.mark.kafka, pytest.mark.story]

ON_SOURCE, ON_TARGET = "mm2-offset-syncs.eu-west.internal", "mm2-offset-syncs.us-east.internal"


@pytest.mark.parametrize("said", ["source", "target", "nowhere"])
def test_offset_syncs_are_written_to_the_configured_cluster(world, unique_topic, said):
    is_emitted = said != "nowhere"
    location = {"offset-syncs.topic.location": said} if is_emitted else {}
    here = world(unique_topic, **{"emit.offset-syncs.enabled": str(is_emitted).lower(), **location})
    create_topic(here.source.bootstrap_servers, unique_topic)
    produce(here.source.bootstrap_servers, unique_topic, [Record(b"k", b"v")] * 3)

    here.mirror()

    expected = [OffsetSync(unique_topic, 0, 0, 0), OffsetSync(unique_topic, 0, 2, 2)]
    found = {"source": _syncs(here.source, ON_SOURCE), "target": _syncs(here.target, ON_TARGET)}
    told = {
        where: [sync for sync in syncs if sync.topic == unique_topic]
        for where, syncs in found.items()
    }
    assert told == {"source": [], "target": []} | ({said: expected} if is_emitted else {})


def _syncs(broker, topic):
    try:
        found = consume_all(broker.bootstrap_servers, topic)
    except KeyError:  # nobody has made it
        return []
    return [OffsetSync.read(each.key(), each.value()) for each in found]
