"""What keys that are fine each by itself must not say together: MirrorMaker 2's own rules."""

from __future__ import annotations

from resources.mm2_file import Mm2File, Place
from schemas.config.flow import Flow

SYNCS = "emit.offset-syncs.enabled"
# Of a connector's keys these set the offset syncs up (MirrorConnectorConfig).
OF_SYNCS = ("offset-syncs-", "offset-syncs.topic.")


def contradiction(file: Mm2File, place: Place) -> str | None:
    """Return why the key at *place* cannot stand beside others of *file*. None: it can.

    MirrorSourceConnector refuses `emit.offset-syncs.enabled=false` beside keys that set the syncs
    up (KIP-1031); it knows the word in small letters only and takes `False`. A key at the top level
    is judged for every enabled flow that does not say it itself.
    """
    if place.key != SYNCS or file.values[place.written] != "false":
        return None
    for flow in file.enabled_flows():
        if place.flow == flow or (place.scope == "T" and SYNCS not in file.at_flow(flow)):
            for key in _keys_of_syncs(file, flow):
                return f"no offset syncs are written, but {key} sets them up: say one of them"
    return None


def _keys_of_syncs(file: Mm2File, flow: Flow) -> list[str]:
    at_flow = [f"{flow.name}.{key}" for key in file.at_flow(flow) if key.startswith(OF_SYNCS)]
    return at_flow + [key for key in file.top() if key.startswith(OF_SYNCS)]
