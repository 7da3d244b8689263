"""The compiled loops run wherever the product runs."""

import os
import subprocess
import sys

GATHER = """
import numpy as np
from resources.librdkafka.compiled import copy_bytes
words = np.frombuffer(b"12345678", np.uint8)
into = np.zeros(8, np.uint8)
copy_bytes(np.array([words.ctypes.data]), np.array([8]), into)
print(into.tobytes().decode())
"""


def test_loops_are_compiled_for_the_process_only_if_no_folder_is_writable():
    # Only within IPython has this one a folder to offer.
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "IPythonCacheLocator"}

    done = subprocess.run(
        [sys.executable, "-c", GATHER],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "12345678"
