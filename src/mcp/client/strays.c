/* Processes that a child has started itself. Linked into the tool server and the command line. */
#include "mcp/client/strays.h"

#include <signal.h>
#include <sys/epoll.h>
#include "base/fd.h"
#include "base/proc.h"

void cg_strays_init(struct cg_strays *s)
{
        s->epfd = -1;
        s->n = 0;
}

void cg_strays_fini(struct cg_strays *s)
{
        for (size_t i = 0; i < s->n; i++)
                close(s->list[i].pidfd);
        if (s->epfd >= 0)
                close(s->epfd);
        cg_strays_init(s);
}

static void add(struct cg_strays *s, pid_t pid, pid_t parent)
{
        struct epoll_event e = { .events = EPOLLIN };
        struct cg_proc_stat stat;
        int fd;

        for (size_t i = 0; i < s->n; i++)
                if (s->list[i].pid == pid)
                        return;
        if (s->n == CG_STRAYS_MAX)
                return;
        if (s->epfd < 0)
                s->epfd = epoll_create1(EPOLL_CLOEXEC);
        fd = s->epfd < 0 ? -1 : cg_pidfd_open(pid, NULL);
        if (fd < 0)
                return;
        /* The number may have been reused before pidfd_open(), but cannot be while it is open. */
        e.data.u64 = (uint64_t)pid;
        if (!cg_proc_read_stat(pid, &stat) || stat.parent != parent ||
            epoll_ctl(s->epfd, EPOLL_CTL_ADD, fd, &e) < 0) {
                close(fd);
                return;
        }
        s->list[s->n].pid = pid;
        s->list[s->n++].pidfd = fd;
}

/* The children that one thread of @pid has started. */
static void add_children(struct cg_strays *s, pid_t pid, const char *tid)
{
        char path[96], word[16];
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid, tid);
        f = fopen(path, "re");
        if (!f)
                return;
        while (fscanf(f, "%15s", word) == 1)
                add(s, (pid_t)strtol(word, NULL, 10), pid);
        fclose(f);
}

static void add_children_of_all_threads(struct cg_strays *s, pid_t pid)
{
        char path[64];
        struct dirent *d;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = opendir(path);
        while (dir && (d = readdir(dir)))
                if (d->d_name[0] != '.')
                        add_children(s, pid, d->d_name);
        if (dir)
                closedir(dir);
}

void cg_strays_gather(struct cg_strays *s, pid_t root)
{
        add_children_of_all_threads(s, root);
        for (size_t i = 0; i < s->n; i++) /* the list grows meanwhile */
                add_children_of_all_threads(s, s->list[i].pid);
}

void cg_strays_kill(struct cg_strays *s)
{
        for (size_t i = 0; i < s->n; i++)
                cg_pidfd_kill(s->list[i].pidfd, SIGKILL);
}

bool cg_strays_gone(struct cg_strays *s)
{
        struct epoll_event e;

        while (s->n && epoll_wait(s->epfd, &e, 1, 0) == 1) {
                for (size_t i = 0; i < s->n; i++) {
                        if ((uint64_t)s->list[i].pid != e.data.u64)
                                continue;
                        epoll_ctl(s->epfd, EPOLL_CTL_DEL, s->list[i].pidfd, NULL);
                        close(s->list[i].pidfd);
                        s->list[i] = s->list[--s->n];
                        break;
                }
        }
        return s->n == 0;
}
