"""Fail unless a boot was warm: for readiness probes and CI, on the file of vcc run --report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())
print(f"{report['state']}, {'warm' if report['warm'] else 'not warm'}")
for miss in report.get("misses", ()):
    print(f"miss: {miss['outcome']}: {miss['why']}")
sys.exit(not report["warm"])
