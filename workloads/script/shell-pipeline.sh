#!/bin/sh
# An example of a script: processes are made, pages copied on write, pipes filled and emptied.
set -e
count=0
while [ $count -lt 20 ]; do
    seq 1 500 | sort -rn | tail -n 1 >/dev/null
    count=$((count + 1))
done
echo "{\"metrics\": {\"pipelines\": $count}}"
