# SPDX-License-Identifier: GPL-2.0-or-later
# The CPUs of each thread of each QEMU, seen once a second.
for ((look = 0; ; look++)); do
    [ ! -e "$1" ] || exit 0
    for task in /proc/[0-9]*/task/*/; do
        read -r name <"$task/comm"
        case "$name" in qemu-system*|CPU*) ;; *) continue ;; esac
        while read -r key value; do
            case "$key" in
            Cpus_allowed_list:) echo "$look $task $value" ;;
            esac
        done <"$task/status"
    done 2>/dev/null
    sleep 1
done
