"""Checkpoints and heartbeats have the bytes that MirrorMaker 2 4.3 writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.mm2.records import MAX_STRING_BYTES, Checkpoint, Heartbeat, encode_string

# Bytes that MirrorMaker 2's own classes produced. Never change them.
GOLDEN_CHECKPOINTS = [
    pytest.param(
        Checkpoint("g1", "A.orders", 3, 100, 42),
        "0002 6731 0008 412e6f7264657273 00000003",
        "0000 0000000000000064 000000000000002a 0000",
        id="plain",
    ),
    pytest.param(
        Checkpoint("gé", "A.orders", 0, 2**40, -1, "m"),
        "0003 67c3a9 0008 412e6f7264657273 00000000",
        "0000 0000010000000000 ffffffffffffffff 0001 6d",
        id="two-byte letters, a large offset, metadata",
    ),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
longs = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("checkpoint", "key", "value"), GOLDEN_CHECKPOINTS)
def test_a_checkpoint_has_the_bytes_that_mirrormaker_2_writes(checkpoint, key, value):
    assert checkpoint.key == bytes.fromhex(key)
    assert checkpoint.value == bytes.fromhex(value)


@pytest.mark.parametrize(("checkpoint", "key", "value"), GOLDEN_CHECKPOINTS)
def test_a_checkpoint_that_mirrormaker_2_wrote_can_be_read(checkpoint, key, value):
    assert Checkpoint.read(bytes.fromhex(key), bytes.fromhex(value)) == checkpoint


def test_a_heartbeat_has_the_bytes_that_mirrormaker_2_writes():
    heartbeat = Heartbeat("A", "B", 1_700_000_000_000)

    assert heartbeat.key == bytes.fromhex("0001 41 0001 42")
    assert heartbeat.value == bytes.fromhex("0000 0000018bcfe56800")
    assert Heartbeat.read(heartbeat.key, heartbeat.value) == heartbeat


@given(texts, texts, st.integers(0, 2**31 - 1), longs, longs, texts)
def test_an_encoded_checkpoint_can_be_decoded(group, topic, partition, up, down, metadata):
    checkpoint = Checkpoint(group, topic, partition, up, down, metadata)

    assert Checkpoint.read(checkpoint.key, checkpoint.value) == checkpoint


def test_bytes_after_the_end_of_a_value_are_ignored_as_in_mirrormaker_2():
    checkpoint = Checkpoint("g1", "A.orders", 3, 100, 42)

    assert Checkpoint.read(checkpoint.key, checkpoint.value + b"later version") == checkpoint


@pytest.mark.parametrize("cut", range(20))
def test_a_truncated_record_is_an_error(cut):
    checkpoint = Checkpoint("g1", "A.orders", 3, 100, 42)
    heartbeat = Heartbeat("A", "B", 1)

    with pytest.raises(ValueError, match=r"."):
        Checkpoint.read(checkpoint.key, checkpoint.value[:cut])
    with pytest.raises(ValueError, match=r"."):
        Checkpoint.read(checkpoint.key[:cut][:17], checkpoint.value)
    with pytest.raises(ValueError, match=r"."):
        Heartbeat.read(heartbeat.key, heartbeat.value[: cut % 10])


def test_a_name_that_is_too_long_for_a_field_is_an_error():
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_string("x" * (MAX_STRING_BYTES + 1))
