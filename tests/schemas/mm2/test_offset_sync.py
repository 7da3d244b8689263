"""Offset syncs have MirrorMaker 2's bytes; its own class made the golden bytes."""

import pytest

from schemas.mm2.records import OffsetSync

SYNC = OffsetSync("orders", 3, 100, 42)
KEY = bytes.fromhex("0006 6f7264657273 00000003")
VALUE = bytes.fromhex("0000000000000064 000000000000002a")


def test_an_offset_sync_has_the_bytes_that_mirrormaker_2_writes():
    assert (SYNC.key, SYNC.value) == (KEY, VALUE)


def test_an_offset_sync_that_mirrormaker_2_wrote_can_be_read():
    assert OffsetSync.read(KEY, VALUE) == SYNC


@pytest.mark.parametrize(("key", "value"), [(KEY[:-1], VALUE), (KEY, VALUE[:-1]), (b"", VALUE)])
def test_a_truncated_offset_sync_is_an_error(key, value):
    with pytest.raises(ValueError, match=r"not an offset sync|no string"):
        OffsetSync.read(key, value)
