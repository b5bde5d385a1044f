# SPDX-License-Identifier: GPL-2.0-or-later
# Waits until a command has written so many files, or has ended.
while kill -0 "$1" 2>/dev/null; do
    found=("$3"/*)
    [ ! -e "${found[0]}" ] || [ ${#found[@]} -lt "$2" ] || exit 0
    sleep 0.2
done
exit 1
