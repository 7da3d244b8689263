from tools.architecture_picture import PAGE, picture


def test_the_committed_picture_is_the_one_that_the_script_draws():
    assert PAGE.read_text(encoding="utf-8") == picture()
