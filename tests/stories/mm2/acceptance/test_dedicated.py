"""DedicatedMirrorIntegrationTest: MirrorMaker 2 in dedicated mode."""

from __future__ import annotations

import pytest

from tests.stories.mm2.acceptance.cluster_pair import RECORDS, running

pytestmark = [pytest.mark.kafka, pytest.mark.story]


def test_single_node_cluster(plain):
    pair = plain
    pair.make(1)
    pair.write(1)

    run = pair.mesh()
    process = run.start()
    try:
        pair.has(1, RECORDS)
        pair.make(2)
        pair.write(2)
        pair.has(2, RECORDS)
        assert process.poll() is None, run.log()
    finally:
        run.end()


def test_cluster_with_emit_offset_disabled(plain):
    pair = plain
    pair.make(1)
    pair.write(1)
    off = {"emit.offset-syncs.enabled": "false", "emit.checkpoints.enabled": "false"}

    with running(pair.mesh(**off)):
        pair.has(1, RECORDS)
