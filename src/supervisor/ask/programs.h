/* Programs that cells want to start, where the session's setting "exec" restricts that. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct kernel;
struct session;

/* The sandbox of @k is there: reads what its init asks at @fd (borrows). */
int cg_sup_programs_open(struct kernel *k, int fd, struct cg_err *err);
/* The sandbox ends: closes its questions. */
void cg_sup_programs_close(struct kernel *k, const char *why);
/* The cell is interrupted: refuses what it waits for. */
void cg_sup_programs_interrupted(struct session *ss, uint64_t cell);
