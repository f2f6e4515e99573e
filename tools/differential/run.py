"""swath against GDAL on generated files: damaged ones, random conversions, reference systems and overviews.

Every case is made from the seed and its number, so `--only damaged --at 123` shows one again. Where the two differ and
allowed.toml has no reason for it, the case is kept in target/differential/faults, and the run fails. A run that was
interrupted continues where it stopped, as long as the code is the same (`--again` begins anew).

    python tools/differential/run.py --count 2000
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[2] / "tests" / "python"),
]

from converted import Converted  # noqa: E402
from damaged import Damaged  # noqa: E402
from harness import CORPUS, ROOT, SHARED_CORPUS, SHARED_RASTERS, Swath, record, scratch  # noqa: E402
from mutate import sources  # noqa: E402
from outcome import FINE, Outcome, Table  # noqa: E402
from overviews import Overviews  # noqa: E402
from revision import results_of, revision  # noqa: E402
from systems import Systems  # noqa: E402

TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "differential"
# The number of each kind in a hundred cases.
SHARES = {"damaged": 80, "converted": 10, "systems": 7, "overviews": 3}


class Maker(Protocol):
    kind: str

    def case(self, index: int, seed: int) -> Outcome: ...
    def close(self) -> None: ...


class Run:
    """Results so far with this code; written every few cases, so that the next run continues there."""

    def __init__(self, path: Path, again: bool) -> None:
        self.path, self.revision = path, revision()
        known = {} if again else results_of(path, self.revision)
        self.done: dict[str, int] = known.get("done", {})
        self.verdicts = Counter(known.get("verdicts", {}))
        self.faults: list[dict[str, Any]] = known.get("faults", [])

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        state = {"revision": self.revision, "done": self.done, "verdicts": self.verdicts, "faults": self.faults}
        draft.write_text(json.dumps(state, indent=1))
        draft.rename(self.path)

    def count(self, outcome: Outcome, allowed: bool) -> None:
        self.done[outcome.kind] = outcome.index + 1
        verdict = (
            outcome.verdict if outcome.verdict in FINE else f"{outcome.verdict}, {'allowed' if allowed else 'NOT'}"
        )
        self.verdicts[f"{outcome.kind}: {verdict}"] += 1
        if outcome.verdict not in FINE and not allowed:
            self.faults.append(
                {"kind": outcome.kind, "index": outcome.index, "verdict": outcome.verdict, **outcome.facts}
            )


def shown(outcome: Outcome) -> str:
    facts = "".join(f"\n    {name}: {value}" for name, value in outcome.facts.items() if value)
    return f"{outcome.kind} {outcome.index}: {outcome.verdict}{facts}"


def save_finding(outcome: Outcome, seed: int) -> None:
    """Saves a difference that is not allowed: its file, and its facts as JSON."""
    folder = TARGET / "faults"
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / f"{outcome.kind}-{seed}-{outcome.index}"
    if outcome.content:
        name.with_suffix(".tif").write_bytes(outcome.content)
    name.with_suffix(".json").write_text(json.dumps({"verdict": outcome.verdict, **outcome.facts}, indent=1) + "\n")


def makers(folder: Path, swath: Swath) -> list[Maker]:
    files = sources(ROOT, [SHARED_CORPUS, SHARED_RASTERS])
    assert files, f"there is nothing in {CORPUS / 'good'}: `make fixtures` makes it"
    return [Damaged(files, folder), Converted(files, folder, swath), Systems(folder, swath), Overviews(folder, swath)]


def binary() -> Path:
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    path = Path(os.environ.get("SWATH_BIN", target / "release" / "swath")).resolve()
    assert path.is_file(), f"{path} is missing: `make build` makes it"
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="cases in all; 50000 in the long run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SHARES, help="cases of one kind")
    parser.add_argument("--at", type=int, help="one case again, with --only, and show it")
    parser.add_argument("--again", action="store_true", help="begin anew")
    args = parser.parse_args()
    table = Table(Path(__file__).with_name("allowed.toml"))
    with scratch() as name:
        swath = Swath(binary(), Path(name))
        chosen = [maker for maker in makers(Path(name), swath) if args.only in (None, maker.kind)]
        try:
            if args.at is not None:
                outcome = chosen[0].case(args.at, args.seed)
                save_finding(outcome, args.seed)
                print(shown(outcome), "\n", "allowed" if table.allows(outcome) else "not in the table")
                return 0
            return walk(chosen, Run(TARGET / f"state-{args.seed}.json", args.again), table, args)
        finally:
            for maker in chosen:
                maker.close()
            swath.close()


def walk(chosen: list[Maker], run: Run, table: Table, args: argparse.Namespace) -> int:
    shares = sum(SHARES[maker.kind] for maker in chosen)
    again = [fault for fault in run.faults if any(maker.kind == fault["kind"] for maker in chosen)]
    for fault in again:
        # Earlier faults may be fixed, or have a reason by now.
        outcome = next(maker for maker in chosen if maker.kind == fault["kind"]).case(fault["index"], args.seed)
        if outcome.verdict in FINE or table.allows(outcome):
            run.faults.remove(fault)
    for maker in chosen:
        last, saved = args.count * SHARES[maker.kind] // shares, time.monotonic()
        for index in range(run.done.get(maker.kind, 0), last):
            outcome = maker.case(index, args.seed)
            allowed = outcome.verdict in FINE or table.allows(outcome)
            run.count(outcome, allowed)
            if not allowed:
                save_finding(outcome, args.seed)
                print(shown(outcome), flush=True)
            if time.monotonic() - saved > 5:
                run.save()
                saved = time.monotonic()
        run.save()
    for verdict, count in sorted(run.verdicts.items()):
        print(f"{count:7} {verdict}")
    for entry in table.entries:
        print(f"{table.used[entry.number]:7} allowed: {entry.verdict}: {entry.reason}")
    for maker in chosen:
        lost = sum(fault["kind"] == maker.kind for fault in run.faults)
        tries = run.done.get(maker.kind, 0)
        record("R13", f"against GDAL, {maker.kind}", tries, tries - lost, lost)
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
