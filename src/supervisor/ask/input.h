/* input() of cells. */
#pragma once

#include "base/wire.h"

struct session;

/*
 * INPUT_REQUEST and INPUT_CANCEL of a kernel: an interrupt, or an exception of the cell itself, has
 * ended its input(). A new question replaces an open one: a kernel has one at a time, and has
 * cancelled the older one.
 */
void cg_sup_input_request(struct session *ss, struct cg_msg *m);
