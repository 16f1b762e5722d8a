"""Blocks of pages that a program writes: between ``<!-- MARK -->`` and ``<!-- end -->``."""

END = "<!-- end -->"


def _split(page: str, mark: str) -> tuple[str, str, str]:
    """Return a page up to its block, the block, and the rest."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    block, end, after = rest.partition(END)
    assert begin, f"the page has no {mark}"
    assert end, f"{mark} has no end"
    return before + begin, block, end + after


def block_of(page: str, mark: str) -> str:
    """Return the text of a block."""
    return _split(page, mark)[1]


def with_block(page: str, mark: str, block: str) -> str:
    """Return a page with another text in its block."""
    before, _, after = _split(page, mark)
    return before + block + after


def table_rows(page: str, mark: str) -> list[list[str]]:
    """Return the cells of a block's table in Markdown, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block_of(page, mark).splitlines()[2:]]
