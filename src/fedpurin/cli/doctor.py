"""fedpurin doctor | completion"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fedpurin.cli.common import add_command, add_json, make_console, print_json

SHELLS = ("bash", "zsh", "fish")
COLOURS = {"ok": "green", "missing": "yellow", "broken": "red"}


def add_commands(commands: Any) -> None:
    add_json(add_command(commands, "doctor", examine_all))
    completion = add_command(commands, "completion", print_completion, "completion bash")
    completion.add_argument(
        "shell",
        choices=SHELLS,
        help="then put into its start file, e.g. ~/.bashrc:  "
        'eval "$(fedpurin completion bash)"; fish: fedpurin completion fish | source',
    )


def examine_all(args: argparse.Namespace) -> int:
    """Look at what is installed and try whether training works."""
    from fedpurin.doctor import Finding, examine

    findings: list[Finding] = []
    console = make_console()
    for finding in examine():
        if not args.json:
            if not findings or findings[-1].group != finding.group:
                console.print(finding.group, style="bold")
            console.print(f"  {finding.status:<7} ", style=COLOURS[finding.status], end="")
            console.print(f"{finding.name:<19} {finding.text}")
        findings.append(finding)
    # 1 where something that every run needs is broken; what is only missing is told with its remedy
    broken = [finding.name for finding in findings if finding.status == "broken"]
    advised = [finding for finding in findings if finding.advice]
    if args.json:
        print_json({"ok": not broken, "findings": [asdict(finding) for finding in findings]})
        return int(bool(broken))
    if advised:
        console.print("advice", style="bold")
    for finding in advised:
        console.print(f"  {finding.name}: {finding.advice}")
    healthy = "All that every run needs is here: try  fedpurin compare"
    console.print(f"Broken: {', '.join(broken)}" if broken else healthy)
    return int(bool(broken))


def print_completion(args: argparse.Namespace) -> int:
    """Print what makes a shell complete fedpurin's commands and flags."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["fedpurin"], shell=args.shell))
    return 0
