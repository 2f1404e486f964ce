/*
 * What a child process has started itself, found while it lives, so that it can be ended although
 * it left the process group (browsers of automation servers do that: their own session, no
 * terminal, no end).
 */
#ifndef CG_MCP_STRAYS_H
#define CG_MCP_STRAYS_H

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

#endif
