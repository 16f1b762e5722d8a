#!/usr/bin/env bash
# biobear 0.23.7 counts 4,271 of 20,000 DNA reads that pbzip2 compressed, and none of what pzstd compressed; needletail 0.7.3 reads the first bzip2 stream. Nothing fails.
#
# Guess: sequencers' files are joined by `cat`, and pbzip2 and pzstd are how one compresses them on many cores; readers that take bzip2 and zstd read all streams, as they do with gzip.
# Seen (2026-11-30): of one FASTQ file, biobear reads the first stream of bzip2, in SQL and by read_fastq_file(), and keeps the read that is cut in two, with 30 of its 100 qualities; pzstd's skippable
# frame in front is the end of the file for SQL. needletail, which fails by chance in such a cut read, ends without an error where a FASTA sequence is cut or where files are joined by `cat`, and
# with "is the file empty?" where the first is empty. Both read all members of gzip, needletail all zstd frames. dnaio 1.2.4 reads everything.
# Needs Debian 12, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq pbzip2=1.1.13-1 zstd=1.5.4+dfsg2-5
for package in ./*.deb; do dpkg -x "$package" programs; done
python3 -m venv env
env/bin/pip install --quiet biobear==0.23.7 needletail==0.7.3 dnaio==1.2.4 zstandard==0.25.0
env/bin/python - <<'PYTHON'
import bz2, collections, gzip, random, subprocess

import biobear, dnaio, needletail, zstandard

READS, HALF = 20_000, 10_000
random.seed(1)
sequences = ["".join(random.choices("ACGT", k=100)) for _ in range(READS)]
records = [f"@r{n}\n{sequence}\n+\n{'I' * 100}\n" for n, sequence in enumerate(sequences)]
with open("reads.fastq", "w") as file:
    file.write("".join(records))
with open("reads.fasta", "w") as file:
    file.write("".join(f">r{n}\n{sequence}\n" for n, sequence in enumerate(sequences)))
subprocess.run(["programs/usr/bin/pbzip2", "-k", "-p2", "reads.fastq", "reads.fasta"], check=True)
subprocess.run(["programs/usr/bin/pzstd", "-q", "-k", "-p", "2", "reads.fastq"], check=True)
halves = ["".join(records[:HALF]).encode(), "".join(records[HALF:]).encode()]
compressors = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}
for suffix, compress in compressors.items():
    with open(f"joined.fastq.{suffix}", "wb") as file:
        file.write(b"".join(map(compress, halves)))

session = biobear.new_session()
NAMES = {"gz": biobear.FileCompressionType.GZIP, "bz2": biobear.FileCompressionType.BZIP2, "zst": biobear.FileCompressionType.ZSTD}


def by_sql(name):
    return session.sql(f"SELECT count(*) AS n FROM fastq_scan('{name}')").to_arrow()["n"][0].as_py()


def by_python(name):
    options = biobear.FASTQReadOptions(file_compression_type=NAMES[name.rpartition(".")[2]])
    return session.read_fastq_file(name, options=options).to_arrow().num_rows


def counted(name):
    """Return how many reads each library finds."""
    with dnaio.open(name) as file:
        found = collections.Counter(dnaio=sum(1 for _ in file))
    if ".fastq" in name:
        found["biobear"] = by_sql(name)
    if name not in ("reads.fastq.bz2", "reads.fastq.zst"):
        found["needletail"] = sum(1 for _ in needletail.parse_fastx_file(name))
    print(f"{name}: {dict(found)}")
    return found


for suffix, expected in {"gz": [READS, READS, READS], "bz2": [READS, HALF, HALF], "zst": [READS, HALF, READS]}.items():
    name = f"joined.fastq.{suffix}"
    assert list(counted(name).values()) == expected and by_python(name) == expected[1]
found = counted("reads.fastq.bz2")
assert found["dnaio"] == READS and found["biobear"] == by_python("reads.fastq.bz2") < READS / 4
last = session.sql("SELECT quality_scores FROM fastq_scan('reads.fastq.bz2')").to_arrow()["quality_scores"][-1].as_py()
assert len(last) < 100
print(f"the last read that biobear finds has {len(last)} of 100 qualities")
found = counted("reads.fastq.zst")
assert found["dnaio"] == READS and found["biobear"] == 0
found = counted("reads.fasta.bz2")
assert found["dnaio"] == READS > 2 * found["needletail"]
PYTHON
echo "biobear 0.23.7, needletail 0.7.3: as described"
