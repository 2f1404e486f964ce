/*
 * Sessions and jobs of all hosts, which each program of the user may list and end (docs/jobs.md):
 * requests of hosts.
 */
#pragma once

#include "base/wire.h"

struct host;

void cg_sup_jobs_list(struct host *h, const struct cg_msg *m);
void cg_sup_session_kill(struct host *h, const struct cg_msg *m);
void cg_sup_job_cancel(struct host *h, const struct cg_msg *m);
