/*
 * Detects that the OOM killer ended a process, by the counter of its control group (version 1 or 2)
 * or else of the whole machine: its SIGKILL does not differ from others. Also measures the memory
 * that there is, and that is used. Runs in cellgate-supervisor.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cg_oom {
        char file[512];         /* has the group's counter; "": there is none */
        char limit[512];        /* has the group's limit */
        int64_t group, machine; /* the counters at cg_oom_mark(); -1: unknown */
};

enum cg_oom_verdict {
        CG_OOM_UNKNOWN, /* there are no counters */
        CG_OOM_NO,
        CG_OOM_MACHINE, /* some process on the machine was ended, perhaps this one */
        CG_OOM_GROUP,   /* in this process's control group */
};

/* Stores the counters of @pid's group. Never fails: a counter that cannot be read is unknown. */
void cg_oom_mark(pid_t pid, struct cg_oom *ret);
/* The verdict by the counters' changes since. *limit_bytes: the group's limit; 0: none, unknown. */
enum cg_oom_verdict cg_oom_since(const struct cg_oom *o, uint64_t *limit_bytes);

/* The memory that this process may use: the machine's or its groups' lowest limit. 0: unknown. */
uint64_t cg_oom_room(void);

/*
 * The machine's memory that programs can still use, and how much of it is to be left for others;
 * bytes. @available is 0 if it is unknown.
 */
void cg_oom_left(uint64_t *available, uint64_t *reserve);
/* Time until the next check: before @available can have fallen to @reserve. */
uint64_t cg_oom_next_check_ms(uint64_t available, uint64_t reserve);
/*
 * Bytes that @pid and its descendants use alone: their memory, memfds that they have open, and
 * files in private folders in memory; not files on disks. Memory that a fork shares counts for
 * each.
 */
uint64_t cg_oom_use(pid_t pid);
/* The same, where memory that a fork shares counts once. Takes longer: some ms for each process. */
uint64_t cg_oom_share(pid_t pid);

/*
 * Folder of the group with the memory controller, from the texts of /proc/self/mountinfo and
 * /proc/PID/cgroup. *version: 1 or 2. -1: none.
 */
int cg_oom_find(const char *mountinfo, const char *cgroup, char *dir, size_t size, int *version);
