"""Owns `unfork doctor`: whether this machine has what unfork needs, and how to get what is missing.

Each check is a small function that returns findings and raises nothing: a doctor who faints at the
first symptom helps nobody.
"""

from __future__ import annotations

import click

from unfork.cli import checks, output
from unfork.cli.context import Context, as_json, finish
from unfork.config import tree
from unfork.errors import ConfigInvalid


@click.command()
@as_json
@click.pass_obj
def command(context: Context) -> int:
    """Check Python, Java, Postgres, disk, ports and sources, and say how to fix what is missing."""
    findings: list[checks.Finding] = []
    try:
        config = context.load()
        findings.append(checks.ok("configuration", "is valid"))
    except ConfigInvalid as error:
        config = tree.Config()
        findings.append(
            checks.failed("configuration", error.message, "mend the lines above, then run it again")
        )
    findings += [checks.python(), checks.java()]
    findings += finish(checks.postgres(config))
    findings += [checks.disk(config), *checks.ports(config)]
    findings += finish(checks.sources(config))
    _show(context.output, findings)
    return 1 if any(finding.status == "fail" for finding in findings) else 0


def _show(to: output.Output, findings: list[checks.Finding]) -> None:
    document = {
        "ok": not any(finding.status == "fail" for finding in findings),
        "checks": [finding.document() for finding in findings],
    }
    fixes = [f"{finding.name}: {finding.fix}" for finding in findings if finding.fix]
    rows = ((finding.status, finding.name, finding.detail) for finding in findings)
    shown = output.table(("", "check", "finding"), rows)
    to.result(document, shown, *(["", "To fix:"] if fixes else []), *(f"  {fix}" for fix in fixes))
