/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction fetch: the lines of code that the core waits for. */
#ifndef LAB_FETCH_H
#define LAB_FETCH_H

/* A block begins; it is the data. */
void on_block(unsigned int vcpu, void *block);

/*
 * If returns are made in a thunk (ITS), so are those of retpolines: one block
 * ends in a jump there, which is the data, and the next is the return.
 */
void on_redirection(unsigned int vcpu, void *target);
void on_return(unsigned int vcpu, void *block);

#endif
