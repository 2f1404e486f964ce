/*
 * Modes with set-user-ID or set-group-ID are refused: such a file in the workspace would give other
 * users of the machine the rights of the user that started the sandbox. nosuid on the sandbox's
 * mounts has no effect outside.
 *
 *      filter          hands every call with such a mode to init        seccomp_rules.c
 *      init            fails it with EPERM; executes set-group-ID       notify.c, broker.c
 *                      itself on folders, where it has a use
 *      reported as     docs/denials.md                                  denial.c
 *
 * openat2() has its mode in memory, which a filter cannot read: it fails with ENOSYS inside, and
 * programs use openat() instead.
 */
#pragma once

#include <sys/syscall.h>

#include "base/util.h"

#define CG_SETID_BITS    (S_ISUID | S_ISGID)
#define CG_SYS_FCHMODAT2 452
/* O_TMPFILE without O_DIRECTORY: a file is made when it is there, whatever else is. */
#define CG_O_TMPFILE ((unsigned int)O_TMPFILE & ~(unsigned int)O_DIRECTORY)

/* Arguments of a call; mkdir() takes none of these bits. */
struct cg_setid_call {
        int nr;
        int mode;  /* argument */
        int flags; /* argument with the flags that make a file, or -1 */
};

static const struct cg_setid_call cg_setid_calls[] = {
        { SYS_openat, 3, 2 },        { SYS_mknodat, 2, -1 }, { SYS_fchmod, 1, -1 }, { SYS_fchmodat, 2, -1 },
        { CG_SYS_FCHMODAT2, 2, -1 },
#ifdef SYS_open /* older architectures have both kinds */
        { SYS_open, 2, 1 },          { SYS_creat, 1, -1 },   { SYS_mknod, 1, -1 },  { SYS_chmod, 1, -1 },
#endif
};

/* The bits that the call asks for; 0: none. */
static inline unsigned int cg_setid_asked(int nr, const uint64_t *args)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(cg_setid_calls); i++) {
                const struct cg_setid_call *c = &cg_setid_calls[i];

                if (c->nr == nr)
                        return c->flags >= 0 && !((unsigned int)args[c->flags] & (O_CREAT | CG_O_TMPFILE))
                                       ? 0
                                       : (unsigned int)args[c->mode] & CG_SETID_BITS;
        }
        return 0;
}
