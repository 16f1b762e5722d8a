"""P1, P1b, P1h: small durable appends, by one, by threads, by processes; what a call costs by each lane."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.case import Case, Goal, Job, Lowered, figure, ratio
from benchmarks.clients import BUCKET, delta_options, need, obs, rolling, s3
from benchmarks.content import check, content
from rollingfs import RollingFileSystem
from rollingfs.policy import INLINE_BYTES_DEFAULT

SIZE = 4096
SIDE_BY_SIDE = 8
HEADER_BYTES = INLINE_BYTES_DEFAULT // 2 + 8 * 1024
"""What an append sends, on average: half a full inline tail, and the header's text."""


def ours(job: Job) -> None:
    fs, path = rolling(job), f"{BUCKET}/p1-{job.name}"
    fs.create(path)
    count = job.pick(500, 60)
    job.each(lambda number: fs.append(path, content(number * SIZE, SIZE)), count)
    check(rolling(job, direct=True).cat_file(path), 0)
    assert job.sample.count == count


def ours_blocking(job: Job) -> None:
    """The same append without an event loop; a trial, see `benchmarks.blocking_lane`."""
    need("obstore")
    from benchmarks.blocking_lane import BlockingBackend

    path = f"{BUCKET}/p1-{job.name}"
    rolling(job).create(path)  # it also probes the store, which the trial could not
    fs = RollingFileSystem(backend=BlockingBackend(s3(job)), skip_instance_cache=True)
    job.each(lambda number: fs.append(path, content(number * SIZE, SIZE)), job.pick(500, 60))
    check(rolling(job, direct=True).cat_file(path), 0)


def obstore_put(job: Job) -> None:
    import obstore

    store, name = obs(job), f"p1-{job.name}"
    job.each(lambda number: obstore.put(store, f"{name}/{number}", content(0, SIZE)), job.pick(500, 60))


def obstore_put_header(job: Job) -> None:
    import obstore

    store, name, data = obs(job), f"p1-{job.name}", content(0, HEADER_BYTES)
    job.each(lambda number: obstore.put(store, f"{name}/{number}", data), job.pick(500, 60))


def obstore_put_over(job: Job, *, awaited: bool = False) -> None:
    """The floor of the store: one object, replaced if nobody else has, by as many bytes as a header has in turn.

    By a call that blocks, or from a thread of the caller through an event loop, as fsspec does it.
    """
    import obstore
    from fsspec.asyn import get_loop, sync

    store, name, cycle, loop = obs(job), f"p1-{job.name}", INLINE_BYTES_DEFAULT // SIZE, get_loop()
    data = content(0, INLINE_BYTES_DEFAULT)
    token = [obstore.put(store, name, b"")["e_tag"]]

    async def put_async(*given: Any, **more: Any) -> Any:
        return await obstore.put_async(*given, **more)

    put = partial(sync, loop, put_async) if awaited else obstore.put

    def put_over(number: int) -> None:
        body = data[: SIZE * (number % cycle + 1)]
        token[0] = put(store, name, body, mode={"e_tag": token[0]}, use_multipart=False)["e_tag"]

    job.each(put_over, job.pick(500, 60))


def obstore_put_awaited(job: Job) -> None:
    """The floor: the same bytes, put from a thread of the caller through an event loop, as fsspec does it."""
    import obstore
    from fsspec.asyn import get_loop, sync

    store, name, data, loop = obs(job), f"p1-{job.name}", content(0, HEADER_BYTES), get_loop()

    async def put(number: int) -> None:
        await obstore.put_async(store, f"{name}/{number}", data, use_multipart=False)

    job.each(lambda number: sync(loop, put, number), job.pick(500, 60))


def s3fs_pipe_file(job: Job) -> None:
    fs, path = s3(job), f"{BUCKET}/p1-{job.name}"
    job.each(lambda number: fs.pipe_file(f"{path}/{number}", content(0, SIZE)), job.pick(500, 60))


def s3fs_ab(job: Job) -> None:
    fs, path = s3(job), f"{BUCKET}/p1-{job.name}"

    def append(number: int) -> None:
        with fs.open(path, "ab") as file:
            file.write(content(number * SIZE, SIZE))

    job.each(append, job.pick(100, 12))
    check(fs.cat_file(path), 0)


def delta(job: Job) -> None:
    options = delta_options(job)
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    url = f"s3://{BUCKET}/p1-{job.name}"
    batch = pa.table({"data": [content(0, SIZE)]})
    write_deltalake(url, batch, storage_options=options)
    table = DeltaTable(url, storage_options=options)  # kept, because opening it by URL reads its log again

    job.each(lambda _: write_deltalake(table, batch, mode="append"), job.pick(60, 6))


def ours_threads(job: Job) -> None:
    fs, path = rolling(job), f"{BUCKET}/p1b-{job.name}"
    fs.create(path)
    data, count = content(0, SIZE), job.pick(2000, 400)

    def append(_: int) -> float:
        began = time.perf_counter()
        fs.append(path, data)
        return time.perf_counter() - began

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool, job.measured(count) as sample:
        sample.latencies_s += pool.map(append, range(count))
    assert fs.info(path)["size"] == count * SIZE


def ours_one_process(job: Job) -> None:
    _processes(job, 1)


def ours_processes(job: Job) -> None:
    _processes(job, SIDE_BY_SIDE)


def _processes(job: Job, processes: int) -> None:
    path = f"{BUCKET}/p1b-{job.name}"
    fs = rolling(job)
    fs.create(path)
    each = job.pick(400, 40) // processes
    context = multiprocessing.get_context("forkserver")
    barrier, answers = context.Barrier(processes + 1), context.Queue()
    workers = [context.Process(target=_append_many, args=(job, path, each, barrier, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    barrier.wait()
    with job.measured(each * processes) as sample:
        for _ in workers:
            sample.latencies_s += answers.get()
        for worker in workers:
            worker.join()
    assert fs.info(path, refresh=True)["size"] == each * processes * SIZE


def _append_many(job: Job, path: str, count: int, barrier: Any, answers: Any) -> None:
    fs = rolling(job)
    fs.append(f"{path}-other", b"") if fs.exists(f"{path}-other") else fs.touch(f"{path}-other")  # probes the store
    data, latencies = content(0, SIZE), []
    barrier.wait()
    for _ in range(count):
        began = time.perf_counter()
        fs.append(path, data)
        latencies.append(time.perf_counter() - began)
    answers.put(latencies)


CASES = (
    Case(
        "P1",
        "durable append of 4 KiB, one after another",
        {
            "rollingfs append": ours,
            "obstore put": obstore_put,
            "obstore put of a header": obstore_put_header,
            "obstore put of a header, awaited": obstore_put_awaited,
            "obstore put over a header": obstore_put_over,
            "s3fs pipe_file": s3fs_pipe_file,
            "s3fs ab": s3fs_ab,
            "delta-rs append": delta,
        },
        (
            Goal("latency / obstore put", ratio("unit_s", "rollingfs append", "obstore put"), at_most=1.2),
            Goal(
                "latency / obstore put of a header",
                ratio("unit_s", "rollingfs append", "obstore put of a header"),
                at_most=1.06,
            ),
            Goal(
                "latency / obstore put over a header",
                ratio("unit_s", "rollingfs append", "obstore put over a header"),
                at_most=1.06,
            ),
            Goal("cpu ms", figure("cpu_unit_s", "rollingfs append", 1000), at_most=1.5),
            Goal(
                "cpu / the awaited put's",
                ratio("cpu_unit_s", "rollingfs append", "obstore put of a header, awaited"),
                at_most=1.6,
            ),
            Goal("latency / s3fs pipe_file", ratio("unit_s", "rollingfs append", "s3fs pipe_file"), at_most=0.65),
            Goal("requests each", figure("requests", "rollingfs append"), at_most=1.02),
            Goal("s3fs ab / latency", ratio("unit_s", "s3fs ab", "rollingfs append"), at_least=4.5),
            Goal(
                "delta-rs / latency",
                ratio("unit_s", "delta-rs append", "rollingfs append"),
                at_least=6,
                lowered=Lowered(
                    "≥ 9", "2026-11-22", "a ninth of delta-rs's 117 ms is 13 ms, and a bare PUT of 4 KiB takes 16 ms"
                ),
            ),
        ),
        shown=("unit_s", "p99_s", "requests", "cpu_unit_s", "memory_bytes"),
    ),
    Case(
        "P1h",
        "durable append of 4 KiB: what a call costs through an event loop, and by a call that blocks",
        {
            "rollingfs append": ours,
            "rollingfs append, blocking": ours_blocking,
            "obstore put over a header": obstore_put_over,
            "obstore put over a header, awaited": partial(obstore_put_over, awaited=True),
        },
        rounds_min=5,
        shown=("unit_s", "cpu_unit_s"),
    ),
    Case(
        "P1b",
        "4 KiB appended by 8 threads, by 8 processes",
        {
            "rollingfs, 1 process": ours_one_process,
            "rollingfs, 8 threads": ours_threads,
            "rollingfs, 8 processes": ours_processes,
        },
        (
            Goal("8 threads / 1", ratio("rate_per_s", "rollingfs, 8 threads", "rollingfs, 1 process"), at_least=6),
            Goal(
                "8 processes / 1", ratio("rate_per_s", "rollingfs, 8 processes", "rollingfs, 1 process"), at_least=0.7
            ),
            Goal(
                "8 processes, p99 / median",
                lambda medians: (
                    medians["rollingfs, 8 processes"]["p99_s"] / medians["rollingfs, 8 processes"]["unit_s"]
                ),
                at_most=10,
            ),
        ),
        shown=("rate_per_s", "unit_s", "p99_s", "requests", "cpu_unit_s"),
    ),
)
