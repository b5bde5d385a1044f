"""`kcidb`: what KernelCI's database takes (schema 5.3). Written to be looked at; the lab sends nothing."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from lab.compare.results import AbResult, ArmResult, CaseResult, mean
from lab.core import records
from lab.kernels.architecture import of_machine
from lab.report import junit, wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.verdict import Outcome

ORIGIN = "kernel_ab_lab"
_VERSION = {"major": 5, "minor": 3}


def comparison(comparisons: Comparisons) -> str:
    """A checkout and a build per arm, a test per case on the build of the test arm."""
    document: dict[str, Any] = {"version": _VERSION, "checkouts": [], "builds": [], "tests": []}
    for item in comparisons.items:
        for arm in ("base", "test"):
            checkout, build = _arm(item, arm)
            for kind, made in (("builds", build), ("checkouts", checkout)):
                if made["id"] not in {known["id"] for known in document[kind]}:
                    document[kind].append(made)
        document["tests"] += [_test(item, case, comparisons.mark) for case in item.result.cases]
    return records.encode(document).decode()


def _arm(item: StoredComparison, arm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    chosen = item.result.base if arm == "base" else item.result.test
    checkout: dict[str, Any] = {"id": _checkout_id(chosen), "origin": ORIGIN, "comment": str(chosen)}
    source = None
    if item.plan is not None:
        source = (item.plan.base if arm == "base" else item.plan.test).spec.tree_source
    if chosen.commit:
        checkout["git_commit_hash"] = chosen.commit
        checkout["valid"] = True
    if source is not None:
        checkout |= {"tree_name": source.tree, "git_commit_name": source.describe}
        # Without the patches themselves their hash is not known; without patches it is empty.
        checkout |= {"misc": {"patches": list(source.patches)}} if source.patches else {"patchset_hash": ""}
    build = {
        "id": f"{ORIGIN}:b-{_sha(chosen.build)}",
        "checkout_id": checkout["id"],
        "origin": ORIGIN,
        "architecture": of_machine(item.result.environment.machine).name,
        "status": "PASS",
        "comment": f"Linux {chosen.release}",
        "misc": {"lab_build": chosen.build},
    }
    return checkout, build | ({"compiler": chosen.compiler} if chosen.compiler else {})


def _checkout_id(arm: ArmResult) -> str:
    return f"{ORIGIN}:ck-{_sha(arm.commit or '', arm.build)}"


def _sha(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _test(item: StoredComparison, case: CaseResult, mark: str) -> dict[str, Any]:
    result, primary = item.result, case.primary
    test: dict[str, Any] = {
        "id": f"{ORIGIN}:t-{_sha(result.result, case.workload, case.case)}",
        "build_id": f"{ORIGIN}:b-{_sha(result.test.build)}",
        "origin": ORIGIN,
        "path": f"lab.{_step(case.workload)}.{_step(case.case)}",
        "status": _status(case),
        "start_time": result.started,
        "comment": str(case.failed) if case.failed else _comment(result, case),
        "environment": {
            "comment": " ".join(filter(None, [f"QEMU {result.environment.qemu}, {result.mode} mode", mark])),
            "misc": records.plain(result.environment),
        },
        "misc": {
            "lab_result": result.result,
            "base_build": result.base.build,
            "case": case.case,
            "verdict": case.word,
            "ratio": primary.ratio,
            "interval": primary.interval,
            "instructions_ratio": case.instructions.ratio if case.instructions else None,
            "comparable": not mark,
        },
    }
    if (value := mean(primary.test)) is not None:
        test["number"] = {"value": value, "unit": wording.unit(primary, result)}
    return test


def _comment(result: AbResult, case: CaseResult) -> str:
    primary = case.primary
    text = f"{case.verdict}: {primary.name} {wording.change(primary)} {primary.interval_text} against {result.base}"
    why = f"; {result.why(case)}" if case.verdict == Outcome.UNKNOWN else ""
    return text + wording.instructions(case) + why


def _status(case: CaseResult) -> str:
    """DONE is a measurement without a judgement, which is what an undecided case is."""
    if case.word == "unsupported":
        return "SKIP"
    if junit.kind(case) == "error":
        return "ERROR"
    return {Outcome.REGRESSION: "FAIL", Outcome.UNKNOWN: "DONE"}.get(case.verdict, "PASS")


def _step(name: str) -> str:
    """A name as a step of a test's path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)
