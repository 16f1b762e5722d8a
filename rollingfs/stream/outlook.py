"""The next offload by policy. Pure: it uses the plans of upkeep and of the follower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollingfs.format.header import Chunk, Header
from rollingfs.segment.files.rewrite_plan import Asked, Plan, Run, moves
from rollingfs.stream.blocks import BlockRule, Move, look, plan, with_chunks


def mover_of(asked: Asked) -> Plan:
    """Return the plan of an offload by a policy, without inline bytes."""
    if asked.max_delay_s is None:
        return moves(asked)
    rule = BlockRule(asked.block_bytes, asked.max_delay_s, asked.chosen)

    def made(header: Header, chunks: Sequence[Chunk], now_ms: int, is_last: bool) -> tuple[int, list[Run]]:
        end, found = header.start, list[Run]()
        while True:
            left = [chunk for chunk in chunks if chunk.end > end]
            block = plan(with_chunks(look(header, now_ms, rule), left, rule, header, now_ms), now_ms, rule)
            if not isinstance(block, Move):
                return end, found
            chosen = replace(asked.chosen, upto=block.upto, start=block.start)
            runs = moves(replace(asked, chosen=chosen))(header, left, now_ms, True)[1]
            if not runs:
                return end, found
            found, end = found + runs, runs[-1][0][-1].end

    return made
