/* Jobs of batch systems: with one ends all that was started in it. */
#pragma once

#include "base/util.h"

static const char *const cg_batch_jobs[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID" };

/* True if this process is in such a job. */
static inline bool cg_in_batch_job(void)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(cg_batch_jobs); i++)
                if (getenv(cg_batch_jobs[i]))
                        return true;
        return false;
}
