/*
 * Processes that a child has started itself, found while it lives. They can be ended although they
 * left its process group, as browsers of automation servers do (a session of their own, no
 * terminal, no end).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A server that has started more than this is a fork bomb; its group is killed all the same. */
#define CG_STRAYS_MAX 64

struct cg_strays {
        int epfd; /* readable when one of them has ended; -1: none were ever found */
        size_t n;
        struct {
                pid_t pid;
                int pidfd;
        } list[CG_STRAYS_MAX];
};

void cg_strays_init(struct cg_strays *s);
void cg_strays_fini(struct cg_strays *s);
/*
 * Adds the descendants of @root, children first. May be called again: processes found before stay
 * in the list, whatever their parent is now.
 */
void cg_strays_gather(struct cg_strays *s, pid_t root);
/* SIGKILL to each. */
void cg_strays_kill(struct cg_strays *s);
/* Removes processes that have ended; returns true when none is left. */
bool cg_strays_gone(struct cg_strays *s);
