# SPDX-License-Identifier: GPL-2.0-or-later
#
# How a workload's program is made of C. Its Makefile sets
#
#   program  the name of what is made
#   sources  C files of its own folder and of lab/, here
#
# and includes this; then  make OUT=dir CC=gcc  leaves dir/$(program).
#
# Nothing of the folder, the time or the machine's settings goes into the
# bytes: the same sources and compiler give the same file anywhere.

ifndef OUT
$(error say where the result goes: make OUT=dir)
endif

CC := gcc
here := $(dir $(abspath $(firstword $(MAKEFILE_LIST))))
shared := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
headers := $(wildcard $(here)*.h $(shared)/lab/*.h $(shared)/lab/arch/*.h)
objects := $(sources:%.c=$(OUT)/%.o)
vpath %.c $(here) $(shared)/lab

CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -g0 -fno-pie \
	  -ffile-prefix-map=$(here)= -ffile-prefix-map=$(shared)/= -I$(shared)
LDFLAGS := -static -no-pie -Wl,--build-id=none

$(OUT)/$(program): $(objects)
	$(CC) $(LDFLAGS) -o $@ $^

$(objects): $(OUT)/%.o: %.c $(headers)
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) -c -o $@ $<
