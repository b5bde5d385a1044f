# SPDX-License-Identifier: GPL-2.0-or-later
# PID 1 of the machine, or a unit of systemd: runs the scripts whose numbers arrive, and answers with their status.
mount -o remount,rw / 2>/dev/null
[ -e /dev/ttyS1 ] || { echo no ttyS1; exit 1; }
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo up >&3
while read -r number <&3; do
    { setsid bash "/mnt/$number.sh" </dev/null >"/mnt/$number.out" 2>"/mnt/$number.err"; echo "$number $?" >&3; } &
done
