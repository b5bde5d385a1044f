"""/proc and /sys of hosts, as files below a folder."""

from pathlib import Path

CPU = "sys/devices/system/cpu"

LAPTOP = {
    f"{CPU}/online": "0-3",
    f"{CPU}/intel_pstate/no_turbo": "0",
    f"{CPU}/smt/active": "1",
    f"{CPU}/smt/control": "on",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "powersave" for n in range(4)},
    **{f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": "3" for n in range(4)},
    **{f"{CPU}/cpu{n}/thermal_throttle/package_throttle_count": "10" for n in range(4)},
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0",
    "sys/kernel/mm/ksm/run": "1",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
    "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    "/dev/nvme0n1p3                          partition\t2097148\t\t524288\t\t-2",
    "proc/sys/vm/swappiness": "60",
    "proc/sys/kernel/random/boot_id": "0d5bd9e4-4d3c-4c0e-9f6e-0b9fd3b0a9a1",
    "proc/loadavg": "1.50 1.20 0.90 2/812 12345",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz\n",
    "proc/meminfo": "MemTotal:       16269616 kB\nMemFree:         1000000 kB\n",
    "proc/stat": "cpu  1000 0 500 8000 100 50 50 300 0 0\n"
    "cpu0 250 0 125 2000 25 12 12 75 0 0\ncpu1 250 0 125 2000 25 13 13 75 0 0\n"
    "cpu2 250 0 125 2000 25 12 12 75 0 0\ncpu3 250 0 125 2000 25 13 13 75 0 0\nintr 1 2 3",
    "proc/77/stat": "77 (qemu-system-x86) S 1 77 77 0 -1 4194560 1 2 3",
    "proc/78/stat": "78 (qemu (odd) name) S 77 77 77 0 -1 4194560 1 2 3",
    "proc/79/stat": "79 (qemu-system-x86) Z 1 77 77 0 -1 4194560 1 2 3",
}

BENCH = {
    **LAPTOP,
    f"{CPU}/intel_pstate/no_turbo": "1",
    f"{CPU}/smt/active": "0",
    f"{CPU}/smt/control": "off",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(4)},
    **{f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": "0" for n in range(4)},
    **{f"{CPU}/cpu{n}/thermal_throttle/package_throttle_count": "0" for n in range(4)},
    "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
    "sys/kernel/mm/ksm/run": "0",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
    "proc/loadavg": "0.02 0.01 0.00 1/300 12345",
    "proc/stat": "cpu  1000 0 500 8000 100 50 50 0 0 0\ncpu0 1000 0 500 8000 100 50 50 0 0 0",
    "proc/77/stat": "77 (sshd) S 1 77 77 0 -1 4194560 1 2 3",
    "proc/78/stat": "78 (bash) S 77 77 77 0 -1 4194560 1 2 3",
    "proc/79/stat": "79 (bash) S 77 77 77 0 -1 4194560 1 2 3",
}

CONTAINER = {
    "proc/loadavg": "0.00 0.00 0.00 1/10 42",
    "proc/stat": "cpu  10 0 5 80 1 0 0 0 0 0\ncpu0 10 0 5 80 1 0 0 0 0 0",
    "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
}


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root
