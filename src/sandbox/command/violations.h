/*
 * Denials of a command: written to the violation log as they happen, summarized at the end. Part
 * of the keeper.
 */
#ifndef CG_SANDBOX_COMMAND_VIOLATIONS_H
#define CG_SANDBOX_COMMAND_VIOLATIONS_H

#include <jansson.h>
#include "sandbox/settings/settings.h"

/* Different denials that are listed at the end. */
#define CG_VIOLATIONS_LISTED 16
/*
 * Bytes that one command may have logged: one that is denied on purpose, again and again, must not
 * fill a disk.
 */
#define CG_VIOLATIONS_LOG_MAX (16u << 20)

struct cg_violations {
        const struct cg_settings *settings;    /* borrowed: whose ignoreViolations hold */
        char command[4096];                    /* the command's beginning, for these */
        int log;                               /* -1: none */
        size_t logged;                         /* bytes */
        bool debug;                            /* each is reported at once, too */
        char *sentences[CG_VIOLATIONS_LISTED]; /* sentences */
        uint64_t times[CG_VIOLATIONS_LISTED];
        size_t n;
        uint64_t more;
};

/* @log (takes) may be -1. */
void cg_violations_init(struct cg_violations *v, const struct cg_settings *s, int log, bool debug);
void cg_violations_fini(struct cg_violations *v);
/*
 * With debug: a line on standard error, in srt's format. Control characters are escaped.
 */
void cg_violations_debug(const struct cg_violations *v, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/* A denial: an object as denial.h has them (takes). */
void cg_violations_add(struct cg_violations *v, json_t *denial);
/* Lists the denials on standard error, if there were any. */
void cg_violations_summary(const struct cg_violations *v);

#endif
