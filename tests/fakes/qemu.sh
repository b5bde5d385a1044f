#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The number depends on the kernel, on the root and on the job, as it does in a real guest.
if [ "$1" = --version ]; then echo 'QEMU emulator version @VERSION@'; exit; fi
for word; do printf '%s\n' "$word"; done > argv
while [ $# -gt 0 ]; do
    case $1 in
    -kernel) kernel=$2 ;;
    -initrd) initrd=$2 ;;
    esac
    shift
done
if [ -e "${0%/*}/wrong flags" ] && ! grep -q lab.turn=++ argv; then
    echo 'EFLAGS: 050ee67a Kernel panic - not syncing: Fatal exception in interrupt' > console.log
    exit
fi
number=$(cat -- "$kernel" "$initrd" | cksum | cut -d ' ' -f 1)
echo 'Linux' > console.log
{
    echo '{"t": "hello", "release": "6.99", "clocksource": "tsc", "mem_kb": 1, "cmdline": "quiet", "cpus": 1}'
    numbers='{\"metrics\": {\"throughput\": '$number', \"faults\": 7}}'
    for name in small large; do
        echo '{"t": "begin", "case": "'$name'", "now_ns": 1}'
        echo '{"t": "out", "case": "'$name'", "line": "'"$numbers"'"}'
        echo '{"t": "end", "case": "'$name'", "status": 0, "signal": 0, "oom_kills": 0, "now_ns": 2}'
    done
    echo '{"t": "done", "lines": 7}'
} > report.jsonl
