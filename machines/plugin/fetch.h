/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction fetch: the lines of code that the core waits for. */
#ifndef LAB_FETCH_H
#define LAB_FETCH_H

/* A block begins; it is the data. */
void on_block(unsigned int vcpu, void *block);

#endif
