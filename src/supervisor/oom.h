/*
 * Was it for want of memory? A process that the OOM killer ended was killed by SIGKILL like any
 * other; what tells is the counter of its control group (version 1 or 2), or else that of the whole
 * machine. Runs in cellgate-supervisor.
 */
#ifndef CG_SUPERVISOR_OOM_H
#define CG_SUPERVISOR_OOM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cg_oom {
        char file[512];         /* that has the group's counter, "" where there is none */
        char limit[512];        /* that has the group's limit */
        int64_t group, machine; /* the counters when it was looked at; -1: not known */
};

enum cg_oom_verdict {
        CG_OOM_UNKNOWN, /* the machine does not tell */
        CG_OOM_NO,
        CG_OOM_MACHINE, /* somewhere on the machine a process was ended for it: perhaps this one */
        CG_OOM_GROUP,   /* in this process's control group */
};

/*
 * Takes down how the counters of @pid's group stand. Never fails: what cannot be read is not known.
 */
void cg_oom_mark(pid_t pid, struct cg_oom *ret);
/*
 * What has happened since. *limit_bytes: the group's limit, 0 where it has none or it is not known.
 */
enum cg_oom_verdict cg_oom_since(const struct cg_oom *o, uint64_t *limit_bytes);

/*
 * The memory that this process may have: the machine's, or the least limit of the groups that it is
 * in. 0: not known.
 */
uint64_t cg_oom_room(void);

/*
 * The machine's memory that programs can still have, and how much of it shall be left for others;
 * bytes. @available is 0 where it is not known.
 */
void cg_oom_left(uint64_t *available, uint64_t *reserve);
/* When to look again: before @available can have come down to @reserve. */
uint64_t cg_oom_next_look_ms(uint64_t available, uint64_t reserve);
/*
 * What @pid and its descendants use that they alone have, bytes: their memory, memfds that they
 * have open, and files in private places of memory; not files on disks. Memory that a fork shares
 * counts for each.
 */
uint64_t cg_oom_use(pid_t pid);

/*
 * Folder of the group with the memory controller, from the texts of /proc/self/mountinfo and
 * /proc/PID/cgroup. *version: 1 or 2. -1: none.
 */
int cg_oom_find(const char *mountinfo, const char *cgroup, char *dir, size_t size, int *version);

#endif
