/* Init: whether the main process can act no more, read from the sandbox's /proc. See stopped.h. */
#include "sandbox/inside/stopped.h"

#include <sched.h>

#include "base/proc.h"
#include "base/util.h"

/* Between its last system call and the release of its memory a process takes some microseconds. */
#define TRIES 20

static bool is_alone(pid_t main_pid)
{
        cg_auto_dir DIR *dir = opendir("/proc");
        const struct dirent *d;
        bool found = false, others = !dir;

        while (dir && (d = readdir(dir))) {
                pid_t pid = cg_proc_of_entry(d->d_name);

                found |= pid == main_pid;
                others |= pid && pid != main_pid && pid != getpid();
        }
        return found && !others;
}

static bool thread_has_anything(pid_t main_pid, pid_t tid)
{
        char path[96], text[64];
        struct stat st;

        /*
         * Since Linux 6.2 the size is the number of descriptors. Standard streams may stay. A
         * thread that has given up all may have been their last user, and be releasing their locks.
         */
        snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", (int)main_pid, (int)tid);
        if (stat(path, &st) == 0 && (st.st_size == 0 || st.st_size > 3))
                return true;
        snprintf(path, sizeof(path), "/proc/%d/task/%d/statm", (int)main_pid, (int)tid);
        if (cg_proc_read_text(path, text, sizeof(text)))
                return strncmp(text, "0 ", 2) != 0;
        return errno != ENOENT && errno != ESRCH; /* otherwise the thread has ended meanwhile */
}

/* True if a thread of the process may have memory, or files other than its standard streams. */
static bool has_anything(pid_t main_pid)
{
        const struct dirent *d;
        bool has = false;
        char path[64];
        cg_auto_dir DIR *dir = NULL;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)main_pid);
        dir = opendir(path);
        if (!dir)
                return true;
        while (!has && (d = readdir(dir))) {
                pid_t tid = cg_proc_of_entry(d->d_name);

                has = tid && thread_has_anything(main_pid, tid);
        }
        return has;
}

bool cg_stopped_check(pid_t main_pid)
{
        int tries = TRIES;

        if (!is_alone(main_pid))
                return false;
        while (has_anything(main_pid)) {
                if (tries-- == 0)
                        return false;
                sched_yield();
        }
        return true;
}
