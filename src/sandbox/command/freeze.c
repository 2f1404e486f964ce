/* Processes inside and what they do, by /proc of the host. Runs in the keeper. */
#include "sandbox/command/freeze.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"

struct process {
        pid_t pid, parent;
        unsigned int level; /* 1: the root; 0: not below it, as far as is known */
};

struct list {
        struct process *v;
        size_t n, cap;
};

/* Of a file of /proc; "" where the process is gone. */
static void read_text(const char *path, char *text, size_t size)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

        text[n > 0 ? n : 0] = '\0';
}

static pid_t number_of(const struct dirent *d)
{
        return isdigit((unsigned char)d->d_name[0]) ? (pid_t)strtol(d->d_name, NULL, 10) : 0;
}

static bool add(struct list *l, pid_t pid)
{
        char path[64], text[512], *rest;
        int parent = 0;

        if (l->n == l->cap) {
                size_t cap = l->cap ? l->cap * 2 : 256;
                struct process *v = realloc(l->v, cap * sizeof(*v));

                if (!v)
                        return false;
                l->v = v;
                l->cap = cap;
        }
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        read_text(path, text, sizeof(text));
        rest = strrchr(text, ')'); /* the name before it is the process's own word */
        if (rest && sscanf(rest, ") %*c %d", &parent) == 1)
                l->v[l->n++] = (struct process){ .pid = pid, .parent = parent };
        return true;
}

static int by_pid(const void *a, const void *b)
{
        const struct process *x = a, *y = b;

        return (x->pid > y->pid) - (x->pid < y->pid);
}

/* The level of each below the root: as many rounds as they are deep, at most. */
static void find_levels(struct list *l, pid_t root)
{
        bool found = true;

        while (found) {
                found = false;
                for (size_t i = 0; i < l->n; i++) {
                        struct process *p = &l->v[i], key = { .pid = p->parent }, *parent;

                        if (p->level)
                                continue;
                        parent = bsearch(&key, l->v, l->n, sizeof(key), by_pid);
                        p->level = p->pid == root ? 1 : parent && parent->level ? parent->level + 1 : 0;
                        found |= p->level != 0;
                }
        }
}

static bool find_all(pid_t root, struct list *l)
{
        DIR *dir = opendir("/proc");
        const struct dirent *d;
        bool ok = dir != NULL;

        while (ok && (d = readdir(dir))) {
                if (number_of(d))
                        ok = add(l, number_of(d));
        }
        if (dir)
                closedir(dir);
        if (ok && l->n) {
                qsort(l->v, l->n, sizeof(*l->v), by_pid);
                find_levels(l, root);
        }
        return ok && l->n;
}

static void mix(uint64_t *h, uint64_t v)
{
        *h = (*h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
        *h ^= *h >> 32;
}

static unsigned long long value_of(const char *text, const char *key)
{
        const char *at = strstr(text, key);

        return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/*
 * Stopped, traced, ended; or waiting where no signal is taken, as for a child that vfork() has
 * made, which cannot go on by itself.
 */
static bool rests(const char *text)
{
        const char *at = strstr(text, "\nState:\t");

        return at && strchr("TtZXxD", at[8]);
}

static void look_at_thread(pid_t pid, pid_t tid, struct cg_still *ret)
{
        char path[96], text[4096];

        snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
        read_text(path, text, sizeof(text));
        ret->moving |= !rests(text);
        mix(&ret->digest, (uint64_t)tid);
        mix(&ret->digest, value_of(text, "\nvoluntary_ctxt_switches:"));
        mix(&ret->digest, value_of(text, "\nnonvoluntary_ctxt_switches:"));
}

static void look_at_process(pid_t pid, struct cg_still *ret)
{
        char path[64];
        const struct dirent *d;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = opendir(path);
        ret->moving |= !dir; /* it has just ended */
        while (dir && (d = readdir(dir))) {
                if (number_of(d))
                        look_at_thread(pid, number_of(d), ret);
        }
        if (dir)
                closedir(dir);
}

bool cg_still_look(const struct cg_inside *in, struct cg_still *ret)
{
        struct list l = { 0 };
        bool ok = find_all(in->root, &l);

        *ret = (struct cg_still){ 0 };
        for (size_t i = 0; i < l.n && ok; i++) {
                if (l.v[i].level > in->outer)
                        look_at_process(l.v[i].pid, ret);
        }
        free(l.v);
        return ok;
}

bool cg_still_is_same(const struct cg_still *a, const struct cg_still *b)
{
        return !a->moving && !b->moving && a->digest == b->digest;
}

void cg_still_signal(const struct cg_inside *in, int sig)
{
        struct list l = { 0 };

        if (find_all(in->root, &l)) {
                for (size_t i = 0; i < l.n; i++) {
                        if (l.v[i].level > in->outer)
                                kill(l.v[i].pid, sig);
                }
        }
        free(l.v);
}
