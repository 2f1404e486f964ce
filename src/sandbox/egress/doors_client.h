/* Doors, for programs that make sandboxes: see doors.h. */
#pragma once

#include "base/buf.h"
#include "base/proc.h"
#include "sandbox/settings/paths.h"
#include "sandbox/settings/rules.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/settings.h"

/* Longest line that the process reports. */
#define CG_DOORS_LINE_MAX 1024

struct cg_doors_process {
        struct cg_proc proc;
        int reports; /* readable: lines for people, then the end; -1 */
        struct cg_buf line;
};
#define CG_DOORS_PROCESS_NONE ((struct cg_doors_process){ .proc = CG_PROC_NONE, .reports = -1 })

/* Does @s open any; and any that listens on the host, which only one sandbox can have? */
bool cg_doors_any(const struct cg_settings *s);
bool cg_doors_on_host(const struct cg_settings *s);
/* Adds them to a plan, after the proxy's ports. */
int cg_doors_plan(const struct cg_settings *s, struct cg_sandbox *plan, struct cg_err *err);
/*
 * Starts the process for a sandbox that was started. @rules: of its files. @doors_fd: of its
 * cg_sandbox_child; @reach: its listeners for cellgate.ports.reach; the caller closes both. The
 * process ends with the sandbox, and with @ret.
 */
int cg_doors_start(const struct cg_settings *s, const struct cg_path_base *base, const struct cg_rules *rules,
                   int doors_fd, const int *reach, struct cg_doors_process *ret, struct cg_err *err);
/*
 * The next line that it reported (without its end, valid until the next call); NULL: none now. At
 * the end, reports is -1.
 */
const char *cg_doors_read_report(struct cg_doors_process *p);
/* After its end: did it end as it should, with its sandbox? */
bool cg_doors_reap(struct cg_doors_process *p);
void cg_doors_end(struct cg_doors_process *p);
