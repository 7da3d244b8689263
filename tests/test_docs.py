from pathlib import Path

import pytest

from assets.docs import PAGES, main, page
from schemas.keys_client import ROLES, client_names
from schemas.keys_flow import KEYS
from schemas.keys_worker import worker_names

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "run `make docs`"


@pytest.mark.parametrize("names", [KEYS, worker_names(), *map(client_names, ROLES)])
def test_every_key_is_documented(names):
    text = page("configuration.md")

    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_page_is_written(tmp_path):
    main(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PAGES)
