/* Connections of host applications. */
#pragma once

#include "base/err.h"

struct sup;

int cg_sup_hosts_start(struct sup *s, struct cg_err *err);
/* Ends the supervisor when @fd (takes), a socket of the process that started it, does first. */
int cg_sup_hosts_watch_starter(struct sup *s, int fd, struct cg_err *err);
void cg_sup_hosts_stop(struct sup *s);
